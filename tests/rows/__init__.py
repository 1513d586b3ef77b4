"""The rows of the contract, one file for each file of the package with functions."""
