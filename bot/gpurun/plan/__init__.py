"""Stage: a job at a commit becomes a plan. Pure; the look-ups are done by `flow` through ports."""
