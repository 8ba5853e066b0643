"""The whole way on film reviews, as one command."""
