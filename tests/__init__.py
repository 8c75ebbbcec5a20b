"""The tests: units mirror the rooms, `system` runs the product from outside, `support` is what they share."""
