"""A small spec that is right, and many that are wrong."""

from __future__ import annotations

from polysweep.sweeps.spec.spec import SweepSpec

GOOD = """\
method: grid
metric: {name: test/top1, goal: maximize}
parameters:
  task: {value: digits}
  model: {value: mlp}
  optimizer: {value: usam}
  rho: {values: [0.1, 0.2]}
  weight_decay: {value: 1e-4}
  epochs: {value: 2}
variants:
  - {scheduler: {value: constant}, lr: {values: [1e-2, 0.1]}}
  - {scheduler: {value: polyak}}
tuned: [lr]
seeds: 3
"""


def parse(text: str) -> SweepSpec:
    return SweepSpec.parse(text, "file.yaml", "file")


WRONG = {
    "not YAML": (GOOD + "bad: ]\n", 15, ["not valid YAML"]),
    "no mapping": ("- 1\n- 2\n", 1, ["a sweep spec is a mapping", "list"]),
    "empty": ("", 1, ["a sweep spec is a mapping", "empty file"]),
    "unknown key": (GOOD + "seedz: 3\n", 15, ["unknown key: 'seedz'", "did you mean 'seeds'", "variants"]),
    "bayes without an end": (
        GOOD.replace("grid", "bayes").replace("{values: [0.1, 0.2]}", "{min: 0.1, max: 0.2}"), 1,
        ["method 'bayes' requires run_cap", "--count N"],
    ),
    "bayes without metric": (
        GOOD.replace("grid", "bayes").replace("metric: {name: test/top1, goal: maximize}\n", "") + "run_cap: 3\n",
        1,
        ["method 'bayes' requires a 'metric'"],
    ),
    "random without an end": (
        GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", "{min: 0.1, max: 0.2}"), 1,
        ["method 'random' requires run_cap", "--count N"],
    ),
    "no multiple of the seeds": (GOOD + "run_cap: 4\n", 15, ["run_cap: 4", "3 seeds", "use 3 or 6"]),
    "a range in a grid": (
        GOOD.replace("{values: [0.1, 0.2]}", "{min: 0.1, max: 0.2}"), 7,
        ["'rho'", "uniform cannot be listed", "random"],
    ),
    "an empty range": (
        GOOD.replace("{values: [0.1, 0.2]}", "{min: 0.3, max: 0.2}"), 7, ["'rho'", "min 0.3 must be less than max 0.2"],
    ),
    "a logarithm of nothing": (
        GOOD.replace("{values: [0.1, 0.2]}", "{distribution: log_uniform_values, min: 0, max: 0.2}"), 7,
        ["log_uniform_values needs min > 0"],
    ),
    "half a range": (GOOD.replace("{values: [0.1, 0.2]}", "{distribution: uniform, min: 0}"), 7, ["needs 'max'"]),
    "too much of a range": (
        GOOD.replace("{values: [0.1, 0.2]}", "{min: 0, max: 1, mu: 2}"), 7, ["does not use", "'min'"],
    ),
    "an unknown distribution": (
        GOOD.replace("{values: [0.1, 0.2]}", "{distribution: gamma, min: 0, max: 1}"), 7,
        ["distribution 'gamma' is not supported", "log_uniform_values", "normal", "q_beta"],
    ),
    "probabilities that do not sum to one": (
        GOOD.replace("grid", "random").replace("[0.1, 0.2]", "[0.1, 0.2], probabilities: [0.5, 0.6]") + "run_cap: 3\n",
        7, ["sum to one, not to 1.1"],
    ),
    "probabilities of a grid": (
        GOOD.replace("[0.1, 0.2]", "[0.1, 0.2], probabilities: [0.5, 0.5]"), 7,
        ["'probabilities' are for method: random"],
    ),
    "draws that are no radius": (
        GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", "{distribution: normal, mu: -9, sigma: 1}")
        + "run_cap: 3\n", 7, ["rho", "greater than or equal to 0"],
    ),
    "a corner of bayes that is no radius": (
        GOOD.replace("grid", "bayes").replace("{values: [0.1, 0.2]}", "{min: -1.0, max: 1.0}") + "run_cap: 3\n",
        7, ["rho", "greater than or equal to 0"],
    ),
    "no hyperband": (GOOD + "early_terminate: {type: median}\n", 15, ["early_terminate.type", "'hyperband'", "median"]),
    "hyperband of nothing": (GOOD + "early_terminate: {type: hyperband}\n", 15, ["either 'min_iter' or 'max_iter'"]),
    "hyperband without rungs": (
        GOOD + "early_terminate: {type: hyperband, max_iter: 9}\n", 15, ["with 'max_iter' needs 's'"],
    ),
    "hyperband of less than an epoch": (
        GOOD + "early_terminate: {type: hyperband, max_iter: 2, s: 1}\n", 15, ["max_iter 2 / eta 3", "one epoch"],
    ),
    "hyperband of everything": (
        GOOD + "early_terminate: {type: hyperband, min_iter: 2, eta: 1}\n", 15, ["early_terminate.eta", "than 1"],
    ),
    "a stack that is not the seeds": (
        GOOD + "early_terminate: {type: hyperband, min_iter: 1}\nlaunch: {stack: 2}\n", 16,
        ["launch.stack: 2", "3 seeds"],
    ),
    "renamed to nothing": (GOOD + "rename: {learning_rate: lrr}\n", 15, ["'lrr'", "did you mean 'lr'"]),
    "renamed twice": (
        GOOD.replace("{value: constant}", "{value: constant}, eta: {value: 1}") + "rename: {eta: lr}\n", 11,
        ["'lr' is given twice"],
    ),
    "unknown method": (GOOD.replace("grid", "gird"), 1, ["method", "'grid'", "'gird'"]),
    "key twice": (GOOD + "seeds: 4\n", 15, ["'seeds' is given twice", "line 14"]),
    "negative radius": (GOOD.replace("0.2]", "-0.2]"), 7, ["rho", "greater than or equal to 0", "-0.2"]),
    "NaN radius": (GOOD.replace("0.2]", ".nan]"), 7, ["rho", "finite"]),
    "radius is a word": (GOOD.replace("0.2]", "wide]"), 7, ["rho", "number", "wide"]),
    "lr to polyak": (
        GOOD.replace("{value: polyak}", "{value: polyak}, lr: {value: 0.1}"),
        12,
        ["lr", "scheduler 'polyak' does not use it", "constant, cosine"],
    ),
    "unknown task": (GOOD.replace("digits", "mnist"), 4, ["unknown task 'mnist'", "digits"]),
    "unknown model": (GOOD.replace("mlp", "vgg"), 5, ["unknown model 'vgg'", "mlp, resnet20, resnet32, resnet8"]),
    "unknown scheduler": (GOOD.replace("polyak", "stairs"), 12, ["'stairs'", "constant, cosine, decsps"]),
    "unknown parameter": (GOOD.replace("rho:", "rhoo:"), 7, ["unknown parameter 'rhoo'", "did you mean 'rho'"]),
    "shared and in a variant": (
        GOOD.replace("{value: polyak}", "{value: polyak}, rho: {value: 0.1}"),
        12,
        ["'rho' is both in 'parameters' and in a variant"],
    ),
    "empty list": (GOOD.replace("[0.1, 0.2]", "[]"), 7, ["'rho'", "at least one value", "[]"]),
    "a trial in two variants": (
        GOOD.replace("{value: polyak}", "{value: constant}, lr: {value: 0.1}"), 12,
        ["listed twice", "equals that of an earlier variant"],
    ),
    "probabilities of another number": (
        GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}",
        "{distribution: categorical_w_probabilities, values: [0.1, 0.2], probabilities: [1]}") + "run_cap: 3\n",
        7, ["1 probabilities for 2 values"],
    ),
    "no probabilities": (
        GOOD.replace("{values: [0.1, 0.2]}", "{distribution: categorical_w_probabilities, values: [0.1, 0.2]}"), 7,
        ["categorical_w_probabilities needs 'probabilities'"],
    ),
    "an empty beta": (
        GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", "{distribution: beta, a: 0}") + "run_cap: 3\n",
        7, ["'rho'", "a: ", "greater than 0"],
    ),
    "a normal distribution in a grid": (
        GOOD.replace("{values: [0.1, 0.2]}", "{distribution: q_log_normal}"), 7,
        ["'rho'", "q_log_normal cannot be listed", "method: random"],
    ),
    "values as exponents": (
        GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", "{distribution: log_uniform, min: 16, max: 999}")
        + "run_cap: 3\n", 7, ["natural logarithms", "log_uniform_values has them as values"],
    ),
    "neither value nor values": (GOOD.replace("{values: [0.1, 0.2]}", "{min: 0}"), 7, ["'rho'", "values", "min"]),
    "bare value": (GOOD.replace("{values: [0.1, 0.2]}", "0.1"), 7, ["'rho'", "{value: x}", "0.1"]),
    "unknown tuned": (GOOD.replace("[lr]", "[lr_max]"), 13, ["'lr_max'", "not a parameter", "epochs, lr, model"]),
    "no seeds": (GOOD.replace("seeds: 3", "seeds: 0"), 14, ["seeds", ">= 1", "0"]),
    "seeds twice": (GOOD.replace("seeds: 3", "seeds: [1, 1]"), 14, ["seeds", "distinct"]),
    "seeds beside seed": (
        GOOD.replace("parameters:", "parameters:\n  seed: {value: 1}"),
        15,
        ["'seeds' beside the parameter 'seed'"],
    ),
    "seeds beside a variant's seed": (
        GOOD.replace("{value: polyak}", "{value: polyak}, seed: {value: 7}"),
        14,
        ["'seeds' beside the parameter 'seed'"],
    ),
    "a key that is a mapping": (GOOD + "name: {{ rho }}\n", 15, ["keys are plain words", "a list or mapping"]),
    "a key that is a number": (GOOD.replace("rho:", "3:"), 7, ["keys are plain words", "'3'"]),
    "an alias in itself": (GOOD + "launch: &a {cpus: *a}\n", 15, ["alias that contains itself"]),
    "a control character": (GOOD + "name: a\x07b\n", 15, ["not valid YAML", "#x0007"]),
    "a date that is none": (GOOD + "name: 2020-13-45\n", 15, ["'2020-13-45': YAML reads this as a date; quote it"]),
    "nested too deeply": ("[" * 3000, 1, ["nested too deeply"]),
    "too many trials": (GOOD.replace("seeds: 3", "seeds: 500000"), 1, ["3000000 trials", "at most 1000000"]),
    "far too many seeds": (GOOD.replace("seeds: 3", "seeds: 1000000000"), 14, ["seeds"]),
    "cpus are true": (GOOD + "launch: {cpus: true}\n", 15, ["launch.cpus", "not true or false"]),
    "an octal number": (GOOD.replace("{value: 2}", "{value: 010}"), 9, ["010", "leading zero"]),
    "an empty class": (GOOD.replace("epochs:", "val_fraction: {value: 0.001}\n  epochs:"), 9, ["val_fraction"]),
    "a batch of more than is left": (
        GOOD.replace("epochs:", "val_fraction: {value: 0.5}\n  batch_size: {value: 1437}\n  epochs:"),
        10,
        ["batch_size: 1437 is larger than the 719 training images"],
    ),
    "an option that is true": (
        GOOD.replace("model: {value: mlp}", "model: {value: mlp}\n  model_options: {value: {hidden: true}}"),
        6,
        ["model_options.hidden", "not true or false"],
    ),
    "no epochs": (GOOD.replace("{value: 2}", "{value: 0}"), 9, ["epochs", "greater than or equal to 1"]),
    "bad name": (GOOD + "name: /!/\n", 15, ["sweep name '/!/'", "1 to 64", "letter or digit"]),
    "no parameters": ("method: grid\n", 1, ["'parameters' is missing"]),
    "empty variants": (GOOD.replace(GOOD[GOOD.index("variants"): GOOD.index("tuned")], "variants: []\n"), 10,
                       ["'variants'", "at least one"]),
    "unknown metric": (GOOD.replace("test/top1", "test/top2"), 2, ["metric.name", "test/top1", "test/top2"]),
    "metric of nothing held out": (GOOD.replace("test/top1", "val/top1"), 2, ["val/top1", "val_fraction"]),
    "unknown launch key": (GOOD + "launch: {gpu: 1}\n", 15, ["unknown key 'gpu'", "did you mean 'gpus'"]),
    "bad stack": (
        GOOD + "launch: {stack: 0}\n", 15,
        ["launch.stack: expected auto or a number of trials from 1 to 4096", "0"],
    ),
    **{
        f"gpus {value}": (
            GOOD + f"launch: {{gpus: {value}}}\n", 15,
            ["launch.gpus: expected auto, a fraction of a GPU such as 0.5 (at least 0.0001), or a whole number of"],
        )
        for value in ("many", -1, 1.5, 0.00001, "true", ".inf", "[1]", ".nan")
    },
    "missing lr": (GOOD.replace(", lr: {values: [1e-2, 0.1]}", "").replace("tuned: [lr]", ""), 11,
                   ["lr: missing", "scheduler 'constant' needs it"]),
}  # fmt: skip
