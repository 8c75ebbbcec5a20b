"""Sweep files as W&B users write them, one for each feature, each with what plans it."""

from __future__ import annotations

SETTINGS = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "constant"}
"""What a W&B file does not say."""
KINDS = "".join(f"  {kind}: {{value: {name}}}\n" for kind, name in SETTINGS.items())

ACCEPTED = {
    "a name with spaces": ("name: My sweep (v2)\n", "  lr: {value: 0.1}\n", "is called My-sweep-v2 in the Store"),
    "no run_cap of a grid that is drawn": (
        "method: random\n", "  lr: {values: [0.1, 0.2]}\n", "run_cap is not given: 2 trials, as many as the grid has",
    ),
    "no goal": ("metric: {name: test/loss}\n", "  lr: {value: 0.1}\n", "metric.goal is not given: minimize, as in W&B"),
    "no goal of an accuracy": (
        "metric: {name: test/top1}\n", "  lr: {value: 0.1}\n", "if larger is better, write goal: maximize",
    ),
    "a seed of bayes": (
        "method: bayes\nrun_cap: 2\nmetric: {name: test/loss, goal: minimize}\n",
        "  lr: {min: 0.1, max: 0.2}\n  seed: {value: 42}\n", "",
    ),
    "null": ("", "  lr: {value: 0.1}\n  momentum: {value: null}\n", ""),
    "merge keys": ("", "  lr: &step {values: [0.1, 0.2]}\n  momentum:\n    <<: *step\n", ""),
    "nested options": (
        "rename: {net: model_options, net.size: model_options.hidden}\n",
        "  lr: {value: 0.1}\n  net:\n    parameters: {size: {value: 8}, layers: {value: 1}}\n", "",
    ),
    "keys of W&B": (
        "kind: sweep\napiVersion: v1\ncontroller: {type: local}\njob: a/b/c:latest\nimage_uri: here\n"
        "program: train.py\ncommand: [python]\nproject: p\nentity: e\ndescription: d\n"
        "metric: {name: test/loss, goal: minimize, "
        "impute: worst, impute_while_running: latest}\nscheduler: {engine: wandb}\n",
        "  lr: {value: 0.1}\n",
        "ignored: program, command, kind, controller, job, image_uri, apiVersion, scheduler, metric.impute, "
        "metric.impute_while_running",
    ),
    "count": ("method: random\ncount: 3\n", "  lr: {min: 0.1, max: 0.2}\n", "count: 3 is taken as run_cap"),
    "count of a grid": ("count: 3\n", "  lr: {value: 0.1}\n", "ignored: count"),
}  # fmt: skip
"""By feature: what stands above `parameters`, what stands in them, and a part of what is noted."""

FOREIGN = {
    "synonyms": "  learning_rate: {values: [0.1, 0.2]}\n  bs: {value: 64}\n  n_epochs: {value: 2}\n  wd: {value: 0}\n",
    "cases and separators": "  Learning-Rate: {value: 0.1}\n  batchSize: {value: 64}\n  MAX_EPOCHS: {value: 2}\n",
    "where it is used": "  optimizer.lr: {value: 0.1}\n  trainer.max_epochs: {value: 2}\n  data.bs: {value: 64}\n",
    "nested": "  optim:\n    parameters: {lr: {value: 0.1}, momentum: {value: 0.9}}\n",
    "options": "  lr: {value: 0.1}\n  hidden_size: {value: 8}\n  num_layers: {value: 1}\n",
    "a slip of the finger beside a synonym": "  lr: {value: 0.1}\n  momentun: {value: 0.5}\n  n_epochs: {value: 1}\n",
}
"""By feature, parameters with names that a `rename` block makes ours."""

CONDITIONAL = {
    "rho": ({"optimizer": "{values: [sgd, sam]}"}, "  lr: {value: 0.1}\n  rho: {values: [0.1, 0.2]}\n", 3),
    "lr and gamma_b": (
        {"scheduler": "{values: [constant, cosine, polyak]}"},
        "  lr: {values: [0.1, 0.2]}\n  lr_min: {value: 0.01}\n  gamma_b: {values: [0.5, 1.0]}\n", 6,
    ),
    "options of a model": ({"model": "{values: [mlp, linear]}"}, "  lr: {value: 0.1}\n"
                           "  model_options: {parameters: {hidden: {values: [4, 8]}}}\n", 3),
    "two kinds": (
        {"optimizer": "{values: [sgd, usam, sam]}", "scheduler": "{values: [constant, polyak]}"},
        "  learning_rate: {value: 0.1}\n  sam_rho: {values: [0.1, 0.2]}\n", 10,
    ),
    "what is not made for each other": (
        {"optimizer": "{values: [sgd, adasam]}", "scheduler": "{values: [constant, polyak]}"},
        "  lr: {value: 0.1}\n  rho: {value: 0.1}\n", 3,
    ),
    "a component listed twice": (
        {"optimizer": "{values: [sgd, sgd, sam]}"}, "  lr: {value: 0.1}\n  rho: {values: [0.1, 0.2]}\n", 3,
    ),
    "bases of SAM": (
        {"optimizer": "{value: sam}"},
        "  base: {values: [sgd, adamw]}\n  lr: {value: 0.1}\n  rho: {value: 0.1}\n"
        "  momentum: {values: [0.5, 0.9]}\n", 3,
    ),
    "optimizers with and without a base, and Polyak": (
        {"optimizer": "{values: [sam, sgd]}", "scheduler": "{values: [constant, polyak]}"},
        "  base: {values: [sgd, adam]}\n  lr: {value: 0.1}\n  rho: {value: 0.1}\n  beta1: {values: [0.8, 0.9]}\n", 6,
    ),
}  # fmt: skip
"""By case: components, parameters that not all of them read, and the trials of the variants."""
