"""Which of our names a foreign one may be."""

from __future__ import annotations

import pytest

from polysweep.sweeps.spec.proposals import in_our_case, meanings, metric_proposal


def test_no_name_is_proposed_twice_or_beside_itself() -> None:
    names = ["learning_rate", "base_lr", "epochs_max", "hidden_size", "nothing"]
    proposed = meanings(names, {"epochs"}, ["model_options.hidden"], by_spelling=True)
    assert proposed == {"learning_rate": "lr", "hidden_size": "model_options.hidden"}


def test_a_spelling_is_proposed_if_it_is_close() -> None:
    names = ["weigth_decay", "test_batch_size", "eta_x", "mode", "beta3"]
    options = ["optimizer_options.beta1"]
    assert meanings(names, (), options, by_spelling=True) == {"weigth_decay": "weight_decay"}


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("val_loss", "val/loss"), ("valid_acc", "val/top1"), ("best_val_accuracy", "val/top1"),
        ("accuracy", "val/top1"),
        ("Validation Accuracy", "val/top1"), ("testAcc", "test/top1"), ("train/epoch_loss", "train/loss"),
        ("eval/top5", "val/top5"), ("test_nll", "test/loss"), ("val_ece", "val/ece"),
        ("cross_entropy", "val/loss"), ("f1", None), ("val_rmse_loss", None),
        ("train_val_gap_loss", None), ("reward", None),
    ],
)  # fmt: skip
def test_metrics_are_read_by_their_words(name: str, ours: str | None) -> None:
    assert metric_proposal(name, has_val=True) == ours
    without = ours and ours.replace("val/", "test/")
    assert metric_proposal(name, has_val=False) == without, "nothing is held out"


def test_names_of_components_are_found_in_any_case() -> None:
    assert [in_our_case("optimizer", name) for name in ("SGD", "LightSAM-I", "Adamax", 3)] == [
        "sgd", "lightsam-i", "Adamax", 3,
    ]  # fmt: skip
