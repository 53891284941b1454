"""`.gpurun.yml` becomes a plan with everything resolved, and the plan gets its digest. Pure."""
