"""What a pre-trained network is worth: fine-tuning, held-out scores, detection."""
