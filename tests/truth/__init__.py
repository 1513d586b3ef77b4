"""Tests of estimators and losses against exact values of tabular MDPs."""
