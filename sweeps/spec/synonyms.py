"""What people call the fields and options of a config in their own scripts, and how such names compare.

A name means what another means if both are in one of `GROUPS`, whatever their case, and their `_`, `-`, `.` and spaces.
Left out is what means different things in different scripts: `decay` (of the weights or the step size), `step_size` (a
learning rate, or the epochs between two of them), `alpha`, `gamma`, `width`, `max_steps`, `test_batch_size`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LISTED: Final = (
    "lr learning_rate base_lr base_learning_rate lr0 lr_0 init_lr initial_lr lr_init init_learning_rate "
    "learning_rate_init initial_learning_rate start_lr starting_lr max_lr lr_max peak_lr peak_learning_rate "
    "max_learning_rate eta eta0 lrate l_rate learn_rate learningrate sgd_lr adam_lr optim_lr optimizer_lr train_lr "
    "lr_base lr_value",
    "lr_min min_lr eta_min final_lr end_lr lr_end lr_final minimum_lr min_learning_rate final_learning_rate "
    "end_learning_rate cosine_min_lr",
    "weight_decay wd w_decay weight_decay_rate weight_dec weights_decay l2 l2_reg l2_lambda lambda_l2 "
    "l2_regularization l2_regularizer l2_penalty l2_weight l2_coef l2_coeff l2_norm_reg reg_l2 adam_weight_decay "
    "sgd_weight_decay weight_decay_coefficient weight_decay_coeff",
    "momentum mom sgd_momentum momentum_sgd heavy_ball",
    "batch_size bs batch batch_sz bsz b_size minibatch mini_batch minibatch_size mini_batch_size mb_size "
    "train_batch train_batch_size training_batch_size batch_size_train train_bs bs_train "
    "per_device_train_batch_size per_gpu_train_batch_size per_device_batch_size batch_size_per_gpu "
    "batch_size_per_device global_batch_size size_batch batches_size",
    "epochs epoch num_epochs num_epoch n_epochs n_epoch nb_epochs nb_epoch no_epochs max_epochs max_epoch "
    "epochs_max total_epochs train_epochs num_train_epochs training_epochs number_of_epochs epochs_num epoch_num "
    "epoch_count epochs_count max_num_epochs ep eps_train n_train_epochs",
    "seed random_seed rng_seed rand_seed manual_seed random_state torch_seed np_seed numpy_seed global_seed "
    "seed_value train_seed training_seed pl_seed seed_everything seed_number",
    "task dataset dataset_name data_set data_name dataset_id task_name which_dataset",
    "model arch architecture backbone net network network_type net_type net_name network_name model_name model_type "
    "model_arch model_architecture model_class backbone_name classifier_model network_architecture nn_type",
    "optimizer optim opt optimiser optimizer_name optimizer_type optim_name optim_type opt_name opt_type solver "
    "optimization_algorithm optimizer_class optimizer_fn which_optimizer optim_alg",
    "base base_optimizer base_optim base_opt base_optimizer_name inner_optimizer",
    "scheduler lr_scheduler lr_schedule lr_sched learning_rate_schedule learning_rate_scheduler scheduler_name "
    "scheduler_type lr_scheduler_type lr_scheduler_name lr_schedule_type lr_policy sched schedule schedule_type "
    "scheduler_class lr_decay_type lr_decay_schedule",
    "rho sam_rho rho_sam perturbation_radius sam_radius neighborhood_size neighbourhood_size ascent_radius",
    "rho_schedule rho_scheduler radius_schedule rho_policy",
    "label_smoothing label_smooth smoothing label_smoothing_factor label_smoothing_eps ls_factor smooth_label "
    "smoothing_factor loss_label_smoothing",
    "label_noise label_noise_rate label_noise_ratio label_noise_level label_noise_fraction label_noise_prob "
    "label_corruption label_flip_rate label_flip_prob symmetric_noise",
    "augmentation augmentations augment aug data_augmentation data_augmentations data_aug augmentation_type "
    "augmentation_policy aug_type augmentation_mode",
    "val_fraction val_split validation_split val_size valid_size validation_size val_ratio valid_ratio "
    "validation_ratio validation_fraction valid_fraction val_frac valid_frac val_pct valid_pct val_percent "
    "valid_split val_percentage validation_percentage dev_split dev_fraction",
    "precision numeric_precision float_precision compute_dtype",
    "batchnorm_statistics bn_statistics bn_stats batchnorm_stats",
    "gamma_b gamma_max sps_max max_step_size gamma_bound step_size_max eta_max",
    "lower_bound f_star fstar loss_lower_bound f_lower_bound",
    # of options:
    "hidden hidden_size hidden_dim hidden_dims hidden_units hidden_unit n_hidden num_hidden nb_hidden hidden_width "
    "hidden_nodes hidden_neurons n_hidden_units num_hidden_units hidden_layer_size hidden_layers_size dim_hidden "
    "size_hidden fc_size fc_dim fc_layer_size layer_size dense_units dense_size neurons n_neurons num_neurons "
    "n_units num_units units hidden_features hidden_channels d_hidden hid_dim h_dim n_hid nhid hidden_d mlp_dim "
    "mlp_hidden_dim",
    "layers layer num_layers n_layers nb_layers n_layer num_layer number_of_layers hidden_layers num_hidden_layers "
    "n_hidden_layers nlayers nlayer layer_count depth num_fc_layers n_fc_layers mlp_layers",
    "beta1 beta_1 b1 adam_beta1 adam_beta_1 opt_beta1 betas1 optimizer_beta1",
    "beta2 beta_2 b2 adam_beta2 adam_beta_2 opt_beta2 betas2 optimizer_beta2",
    "eps epsilon adam_eps adam_epsilon opt_eps optimizer_eps optim_eps eps_adam",
    "dropout dropout_rate dropout_prob dropout_p dropout_probability p_dropout drop drop_rate drop_prob drop_p "
    "p_drop dropout_ratio dropout_value do_rate dp",
    "activation act act_fn act_func activation_fn activation_function activation_func nonlinearity non_linearity "
    "act_type",
    "channels num_channels n_channels nb_channels num_filters n_filters filters conv_channels base_channels",
    "kernel_size kernel ksize kernel_sz conv_kernel_size filter_size",
    "warmup_epochs warm_up_epochs num_warmup_epochs n_warmup_epochs warmup_epoch lr_warmup_epochs",
)
_PREFIXES: Final = ("train", "training", "trainer", "optimizer", "optim", "opt", "model", "hparams", "hparam", "hp",
                    "config", "cfg", "conf", "args", "params", "param")  # fmt: skip
"""First words of a name that say where it is used, not what it is."""


def same_way(name: str) -> str:
    """A name without its case and separators: `weightDecay`, `weight-decay` and `Weight Decay` are one."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


GROUPS: Final[dict[str, int]] = {same_way(name): at for at, names in enumerate(_LISTED) for name in names.split()}
"""By a name's letters, which group it belongs to."""


_OF_COMPONENTS: Final = frozenset(GROUPS[kind] for kind in ("task", "model", "optimizer", "scheduler"))


def readings(name: str) -> Iterator[str]:
    """What a name may be without what says where it is used: itself first, then its ends, `a.b.lr` to `lr`.

    `train_model` asks whether to train it, so that of a name's words only numbers have a first one that can go.
    """
    parts = re.split(r"[./]", name)
    for at in range(len(parts)):
        rest = ".".join(parts[at:])
        yield same_way(rest)
        first, separator, others = rest.partition("_") if "_" in rest else rest.partition("-")
        if separator and first.lower() in _PREFIXES and GROUPS.get(same_way(others)) not in _OF_COMPONENTS:
            yield same_way(others)


def means(foreign: str, ours: str) -> bool:
    """Whether a foreign name means what one of ours does, by its letters or by `GROUPS`."""
    own = same_way(ours)
    group = GROUPS.get(own)
    return any(one == own or (group is not None and GROUPS.get(one) == group) for one in readings(foreign))
