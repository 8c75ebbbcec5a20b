"""Everything that is wrong with a file in one message, and the blocks to paste that make its names ours."""

from __future__ import annotations

import re

import pytest

from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.foreign import FOREIGN, KINDS
from tests.support.specs import GOOD, parse


def pasted(text: str, shown: str) -> str:
    """A file with the `rename` block of a message."""
    (block,) = re.findall(r"^rename:\n(?:  .*(?:\n|$))+", shown, flags=re.MULTILINE)
    return f"{text}{block}\n"


@pytest.mark.parametrize("feature", FOREIGN)
def test_names_are_read_with_the_printed_block(feature: str) -> None:
    text = f"metric: {{name: val_acc, goal: maximize}}\nparameters:\n{KINDS}{FOREIGN[feature]}"
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert len(parse(pasted(text, caught.value.shown)).trials) in (1, 2)


def test_all_that_is_wrong_is_said_once_by_line() -> None:
    text = """\
method: gird
nothing: 1
metric: {name: test/top1, goal: maximise}
parameters:
  task: {value: digits}
  arch: {value: MLP}
  optimizer: {values: [SGD, sam, rmsprop]}
  learning_rate: {value: -0.1}
  rho: {distribution: nearly, min: 0, max: 1}
  epochs: {values: [0, 2]}
  lr_decay: {value: 3}
launch: {gpuz: 1}
seeds: 0
"""
    with pytest.raises(SpecError) as caught:
        parse(text)
    shown = caught.value.shown.splitlines()
    expected = [
        (1, "method"), (1, "scheduler: missing"), (2, "unknown key: 'nothing'"), (3, "metric.goal"),
        (6, "unknown model 'MLP'; did you mean 'mlp'?"), (6, "'arch'; did you mean 'model'?"),
        (7, "unknown optimizer 'SGD'; did you mean 'sgd'?"), (7, "unknown optimizer 'rmsprop'"),
        (8, "lr: Input should be greater than 0"), (8, "'learning_rate'; did you mean 'lr'?"),
        (9, "distribution 'nearly'"), (10, "epochs: Input should be greater"), (11, "'lr_decay'; no field or option"),
        (12, "unknown key 'gpuz'"), (13, "seeds: must be"),
    ]  # fmt: skip
    assert shown[0] == f"file.yaml: {len(expected)} problems", "\n".join(shown)
    lines = shown[1 : shown.index("")]
    assert [int(line.split(":")[1]) for line in lines] == [line for line, _ in expected]
    for line, words in expected:
        assert [one for one in lines if one.startswith(f"file.yaml:{line}: ") and words in one], words
    assert "nothing is proposed for lr_decay: remove them; or let a part of your own read them" in "\n".join(shown)


def test_a_rename_that_is_there_is_part_of_the_block() -> None:
    text = GOOD.replace("rho:", "radius_of_mine:").replace("epochs:", "num_epochs:")
    with pytest.raises(SpecError) as caught:
        parse(text + "rename: {radius_of_mine: rho}\n")
    shown = caught.value.shown
    assert "'rename' of file.yaml as it should be:" in shown
    assert parse(pasted(text, shown)).trials


def test_an_error_in_a_renamed_or_nested_parameter_has_its_line() -> None:
    text = GOOD.replace("  rho:", "  net:\n    parameters:\n      size: {value: 0}\n  rho:")
    with pytest.raises(SpecError, match=r"^file.yaml:9: model_options.hidden: Input should be greater than or equal"):
        parse(text + "rename: {net: model_options, net.size: model_options.hidden}\n")
    with pytest.raises(SpecError, match=r"^file.yaml:9: epochs: Input should be greater"):
        parse(GOOD.replace("epochs: {value: 2}", "n: {value: 0}") + "rename: {n: epochs}\n")


def test_what_follows_from_another_problem_is_not_said() -> None:
    with pytest.raises(SpecError) as caught:
        parse(GOOD.replace("[0.1, 0.2]", "[]"))
    assert "missing" not in caught.value.shown


def test_values_that_yaml_misreads_are_said_with_the_rest() -> None:
    text = GOOD.replace("{value: 2}", "{value: on}").replace("[0.1, 0.2]", "[010, 1:30]") + "nothing: 1\n"
    with pytest.raises(SpecError) as caught:
        parse(text)
    lines = caught.value.shown.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "file.yaml", "file.yaml:7", "file.yaml:7", "file.yaml:9", "file.yaml:15",
    ]  # fmt: skip
    assert all("YAML reads" in line for line in lines[1:4])


def test_a_metric_that_is_called_as_a_parameter_is_no_rename() -> None:
    text = f"metric: {{name: loss, goal: minimize}}\nparameters:\n{KINDS}  lr: {{value: 0.1}}\n  loss: {{value: ce}}\n"
    with pytest.raises(SpecError) as caught:
        parse(text)
    shown = caught.value.shown
    assert "file.yaml:1: metric.name: unknown metric 'loss'; write 'test/loss': a parameter has the same name" in shown
    assert "unknown parameter 'loss'" in shown and "rename:" not in shown.partition("nothing is proposed")[0]


def test_a_name_whose_meaning_the_file_gives_too_is_said_to_be_one() -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"parameters:\n{KINDS}  lr: {{value: 0.1}}\n  learning_rate: {{value: 0.3}}\n  wd: {{value: 0}}\n")
    assert "'learning_rate'; it means 'lr', which the file gives too: keep one of them" in caught.value.shown


def test_null_among_the_values_of_a_field_is_no_problem_beside_others() -> None:
    with pytest.raises(SpecError) as caught:
        parse(
            f"parameters:\n{KINDS}  lr: {{value: 0.1}}\n  weight_decay: {{values: [null, 0.1]}}\n  foo: {{value: 1}}\n"
        )
    assert "weight_decay" not in caught.value.shown.partition("unknown parameter 'foo'")[0]


def test_what_is_wrong_with_several_values_is_said_together() -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"parameters:\n{KINDS}  lr: {{value: 0.1}}\n  batch_size: {{value: 99999}}\n  momentum: {{value: 2}}\n"
              "  model_options: {parameters: {hidden: {value: x}, layers: {value: -1}}}\n")  # fmt: skip
    for word in ("batch_size", "momentum", "model_options.hidden", "model_options.layers"):
        assert word in caught.value.shown


def test_a_metric_that_is_a_word_is_told_its_form() -> None:
    with pytest.raises(SpecError, match=r"file.yaml:1: metric: expected {name: ..., goal: ...}, not 'val_loss'"):
        parse(f"metric: val_loss\nparameters:\n{KINDS}  lr: {{value: 0.1}}\n")
