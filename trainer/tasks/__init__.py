"""Classification tasks: data sets, their splits, augmentation and loss."""
