"""The rows of the contract, one file a topic."""
