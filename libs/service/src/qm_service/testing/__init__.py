"""What tests of services are made of."""
