"""What tests share: fakes of Kubernetes, simulated worlds, a reference model, observers of
histories."""
