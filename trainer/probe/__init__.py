"""What is measured of a trained model besides its history: curvature, and accuracy on corrupted images."""
