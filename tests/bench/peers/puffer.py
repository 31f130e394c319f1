"""PufferLib's training loop, with our meter."""
import os


def train(trainer, meter, look):
    """Until its steps are done, the time is over or the target is reached; look(stats) tells the meter of episodes."""
    trainer.print_dashboard = lambda *a, **k: None
    meter.begin()
    while trainer.global_step < trainer.config["total_timesteps"] and not meter.out_of_time():
        look(trainer.evaluate())
        meter.steps(trainer.global_step)
        if meter.solved_at is not None:
            break
        trainer.train()
    meter.report()
    os._exit(0)  # it would wait for its threads
