"""The two networks, their tying, their cost, and the way to and from Hugging Face."""
