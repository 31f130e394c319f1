"""Whether somebody else's launcher (torchrun, srun, mpirun) started this process, as launcher/given_rank.h finds it."""

_SHELLS = 0xFFFFFFF0  # Slurm's steps that are batch scripts or shells have ids from here on


def count_processes(variables):
    """How many it started, each with a rank of its own; 0 where there is none. What is wrong with the variables, the
    program says."""
    step = variables.get("SLURM_STEP_ID", "")
    in_step = step.isdecimal() and int(step) < _SHELLS and "SLURM_PTY_PORT" not in variables
    mpi = [f"OMPI_COMM_WORLD_{name}" for name in ("SIZE", "RANK", "LOCAL_RANK")]
    for there, counts in (
        (not variables.keys().isdisjoint({"RANK", "LOCAL_RANK", "WORLD_SIZE"}), ["WORLD_SIZE"]),
        (in_step, ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]),
        (not variables.keys().isdisjoint(mpi), mpi[:1]),
    ):
        if there:
            count = next((variables[name] for name in counts if name in variables), "")
            return max(1, int(count)) if count.isdecimal() else 1
    return 0
