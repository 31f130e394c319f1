"""The comparisons: what runs, with which settings, and what must come out."""
import os
import re
import statistics
import sys

import memory
import ours
import probe
import report
import watched as watch
from contender import Contender, peer_line, say
from ours import step, train
from peers import cleanrl, peer

QUIET = dict(evaluation__every_updates=0, checkpoint__every_updates=0, checkpoint__every_seconds=0)  # training alone
FAST_64X32 = ("--num-envs 64 --num-steps 32 --num-minibatches 4 --update-epochs 4 --gamma 0.98 --gae-lambda 0.9 "
              "--learning-rate 2.5e-3 --ent-coef 0 --no-clip-vloss").split()


# Of a step of CartPole PPO, 4 epochs: a decision, then 4 times forward and twice as much backward, through two networks
# of 4, 64 and 64, which decide between 2 and value.
CARTPOLE_FLOP = 2 * (4 * 64 + 64 * 64 + 64 * 2 + 4 * 64 + 64 * 64 + 64) * (1 + 4 * 3)

# Of Breakout's, through the Nature CNN: 3 convolutions on 84 × 84 × 4, a layer of 512, its heads. The first layer has no
# gradient to hand back.
NATURE_MACS = [20 * 20 * 32 * 8 * 8 * 4, 9 * 9 * 64 * 4 * 4 * 32, 7 * 7 * 64 * 3 * 3 * 64, 3136 * 512, 512 * 5]
NATURE_FLOP = 2 * (13 * sum(NATURE_MACS) - 4 * NATURE_MACS[0])


def tuned(options):
    """Counts of threads of which a peer is given its fastest."""
    return (1,) if options.quick else (1, options.cores)


def fastest(contenders, metric):
    return max((who.median(metric) for who in contenders if who.median(metric)), default=None)


def times(factor, value):
    return value and factor * value


def section(title, contenders, tables, verdicts, note=""):
    return "\n\n".join(filter(None, [f"## {title}", note, *tables, "\n".join(verdicts), "Commands:",
                                     report.commands(contenders)]))


def cartpole(options, turns):
    """CleanRL's ppo.py: 4 environments, 128 steps, 500,000 steps."""
    limit = 6 if options.quick else 10
    how = dict(limit_s=limit, threads=tuned(options), flop_per_step=CARTPOLE_FLOP)
    # Its own bound is soon reached: the peers take ten seconds for less.
    us = train("Flotilla", "cartpole_ppo", 1, limit, **QUIET, total_env_steps=10 ** 9, flop_per_step=CARTPOLE_FLOP)
    clean = cleanrl("CleanRL", "ppo.py", "--total-timesteps", "500000", **how)
    rejax = peer("rejax, compiled, on a CPU", "v_rejax", "rejax_cartpole.py", "4x128", **how | dict(threads=()))
    others = [peer("Stable-Baselines3", "v_sb3", "sb3_cartpole.py", "4x128", **how),
              peer("PufferLib", "v_puffer", "puffer_cartpole.py", "4x128", **how), rejax]
    everyone = [us, clean] + ([] if options.quick else others)
    turns(everyone, options.rounds)
    sps = "steps_per_second"
    return section("CartPole PPO at CleanRL's settings (4 × 128)", everyone,
                   [report.table(everyone, sps, "steps a second", us), report.resources(everyone, turns)],
                   [report.verdict("ahead of the peer that JAX compiles", us.median(sps), rejax.median(sps)),
                    report.verdict("at least 5 times CleanRL's steps a second", us.median(sps), times(5, clean.median(sps)))])


def fast(options, turns):
    """Solving CartPole in as little time as possible."""
    limit = 15 if options.quick else 50
    # It ends by itself within a second: too short for a rate.
    unstopped = dict(evaluation__every_updates=10 ** 6, total_env_steps=10 ** 12)
    flop = dict(flop_per_step=CARTPOLE_FLOP)
    one, two = (train(f"Flotilla, {n} learner{'s' * (n > 1)}", "cartpole_fast", n, min(limit, 10), **unstopped, **flop)
                for n in (1, 2))
    shared = train(f"Flotilla, 1 learner, {options.cores} threads", "cartpole_fast", 1, min(limit, 10), **unstopped, **flop,
                   runtime__torch_threads=options.cores)
    half = train("Flotilla, 2 learners in bfloat16", "cartpole_fast", 2, min(limit, 10), **unstopped, **flop,
                 runtime__precision="BF16")
    halves = [half] if probe.multiplies_bfloat16() and not options.quick else []
    stops = [train(f"Flotilla, {n} learner{'s' * (n > 1)}, evaluating, stops when solved", "cartpole_fast", n, limit)
             for n in (1, 2)]
    how = dict(limit_s=limit, threads=tuned(options))
    sb3 = peer("Stable-Baselines3, 64 × 32", "v_sb3", "sb3_cartpole.py", "64x32", **how, **flop)
    own = peer("PufferLib, its own defaults, 64 × 64", "v_puffer", "puffer_cartpole.py", "own", **how)
    rest = [peer("PufferLib, 64 × 32", "v_puffer", "puffer_cartpole.py", "64x32", **how, **flop),
            cleanrl("CleanRL, 64 × 32", "ppo.py", "--total-timesteps", "500000", *FAST_64X32, **how, **flop)]
    # It says nothing of the time to 475.
    rejax = [] if options.quick else [peer("rejax, 64 × 32, compiled, on a CPU", "v_rejax", "rejax_cartpole.py", "64x32",
                                           limit_s=limit, threads=(), **flop)]
    theirs = [sb3, own] + ([] if options.quick else rest)
    everyone = [two, sb3, one, own, *stops] + ([] if options.quick else [*halves, shared, *rest]) + rejax
    turns(everyone, options.rounds)
    sps, solved, evaluated = "steps_per_second", "seconds_to_target", "seconds_to_eval_475"
    quickest = min((who.median(solved) for who in theirs if who.median(solved)), default=None)
    training = [two, one] + ([] if options.quick else [*halves, shared]) + theirs
    return section(
        "cartpole_fast", everyone,
        [report.table(training + rejax, sps, "steps a second", two),
         report.table(training, solved, "seconds until 100 training episodes average 475", two),
         report.table(stops, evaluated, "seconds until 100 evaluated episodes average 475", stops[1]),
         report.resources(training + rejax, turns)],
        [report.verdict(f"{who.name}: at least twice the fastest peer's steps a second", who.median(sps),
                        times(2, fastest(theirs + rejax, sps))) for who in training[:-len(theirs)]] +
        [report.verdict(f"{who.name}: at least 800,000 steps a second", who.median(sps), 8e5)
         for who in [two, *halves]] +
        [report.verdict(f"{who.name}: 475 in at most half the quickest peer's time", who.median(solved),
                        times(0.5, quickest), at_least=False, unit=" s") for who in (two, one)],
        "Seconds count from the start of training, processes started; `-` is a run that did not get there.")


def envservice(options, turns):
    """Frames over the wire from a server in another process, without environments' work."""
    seconds = 1 if options.quick else 3
    cases = ["CartPole, 4 rows, ping-pong, shared", "CartPole, 128 rows, 2 groups",
             "7056 bytes, 16 a message, 2 groups, shared", "7056 bytes, 16 a message, 2 groups, inline"]
    everyone = [step(case, case, seconds) for case in cases]
    turns(everyone, options.rounds)
    sps = "steps_per_second"
    return section("EnvService", everyone, [report.table(everyone, sps, "steps a second")],
                   [report.verdict(f"at least 150,000 steps a second at 7 KB an observation ({how})",
                                   who.median(sps), 150_000)
                    for how, who in (("shared memory", everyone[2]), ("inline", everyone[3]))])


def atari(options, turns):
    """8 games of Pong, random actions."""
    seconds = 3 if options.quick else 10
    us = step("Flotilla, EnvService, lock-step", "ALE/Pong-v5, 8 rows, 1 group,", seconds)
    us_async = step("Flotilla, EnvService, 2 groups", "ALE/Pong-v5, 8 rows, 2 groups,", seconds)
    ale, ale_async, pool, pool_async = (
        peer(f"{name}, {'lock-step' if mode == 'sync' else '4 of 8 a call'}", "v_envpool", "step_pong.py", library, mode,
             "8", limit_s=seconds)
        for library, name in (("ale", "ALE's vector interface"), ("envpool", "EnvPool")) for mode in ("sync", "async"))
    everyone = [us, ale, us_async, ale_async, pool, pool_async]
    turns(everyone, options.rounds)
    sps = "steps_per_second"
    return section("Native Atari: 8 games of Pong", everyone, [report.table(everyone, sps, "steps a second", us)],
                   [report.verdict("lock-step: at least 90 % of the ALE's own vector interface", us.median(sps),
                                   times(0.9, ale.median(sps))),
                    report.verdict("in halves: at least 90 % of the ALE's own vector interface", us_async.median(sps),
                                   times(0.9, ale_async.median(sps)))],
                   "A step is 4 frames, 84 × 84 grey, 2 threads. Ours crosses a process boundary and carries the newest "
                   "frame, which the learner stacks; theirs are in the caller's process and stack 4 frames.")


def breakout(options, turns):
    """CleanRL's ppo_atari.py: 8 games, 128 steps, on a CPU."""
    limit = 15 if options.quick else 20
    flop = dict(flop_per_step=NATURE_FLOP)
    one = train("Flotilla, 1 learner, 2 threads", "breakout_ppo", 1, limit, **QUIET, **flop, runtime__torch_threads=2,
                runtime__precision="FP32")
    # A learner and its worker share a core, where deciding and emulation cannot overlap.
    shared = dict(env__num_envs=4, env__groups=1, runtime__torch_threads=1)
    two = train("Flotilla, 2 learners of 4 games, 1 thread each", "breakout_ppo", 2, limit, **QUIET, **flop,
                **shared, runtime__precision="FP32")
    half = train("Flotilla, the same in bfloat16", "breakout_ppo", 2, limit, **QUIET, **flop,
                 **shared, runtime__precision="BF16")
    # Elsewhere an update takes longer than a turn, and nobody would want it.
    halves = [half] if probe.multiplies_bfloat16() else []
    single = train("Flotilla, 1 learner, 1 thread", "breakout_ppo", 1, limit, **QUIET, **flop, runtime__torch_threads=1,
                   runtime__precision="FP32")
    clean = [cleanrl(f"CleanRL, {n} thread{'s' * (n > 1)}", "ppo_atari.py", limit_s=limit, threads=(n,), **flop)
             for n in (2, 1)]
    gloo = cleanrl("CleanRL, 2 Gloo ranks of 4 games", "ppo_atari_multigpu.py", "--local-num-envs", "4", "--backend",
                   "gloo", limit_s=limit, ranks=2, **flop)
    pool = cleanrl("CleanRL with EnvPool, 2 threads", "ppo_atari_envpool.py", limit_s=limit, threads=(2,), **flop)
    # Starting its processes takes it ten seconds of a turn.
    factory = peer("Sample Factory, 8 processes of a game", "v_sf", "sf_breakout.py", limit_s=2 * limit,
                   threads=tuned(options), **flop)
    everyone = [one, clean[0]] if options.quick else [one, clean[0], two, gloo, *halves, pool, single, factory, clean[1]]
    turns(everyone, options.rounds)
    sps = "steps_per_second"
    best = fastest([*clean, gloo, pool], sps)
    return section("breakout_ppo", everyone,
                   [report.table(everyone, sps, "steps a second", two if two.metrics else one),
                    report.resources(everyone, turns)],
                   [report.verdict("two learners in bfloat16 at least 4 times CleanRL's best (any variant)",
                                   half.median(sps), times(4, best)) for half in halves] +
                   [report.verdict("two learners at least 2.2 times CleanRL's best (any variant)", two.median(sps),
                                   times(2.2, best)),
                    report.verdict("two learners are ahead of Sample Factory", two.median(sps), factory.median(sps)),
                    report.verdict("one learner beats CleanRL's best (any variant)", one.median(sps), best),
                    report.verdict("two learners beat CleanRL's best (any variant)", two.median(sps), best)])


def dqn(options, turns):
    """Pong by DI-engine's DQN: 14 million weights, ten gradient steps of 32 transitions a rank after every 96 steps."""
    limit = 15 if options.quick else 30
    settings = QUIET | dict(evaluation__at_start="false", evaluation__every_updates=10 ** 6, metrics__every_updates=1)
    single = train("Flotilla, 2 learners", "pong_dqn", 2, limit, **settings, runtime__precision="FP32")
    half = train("Flotilla, 2 learners in bfloat16", "pong_dqn", 2, limit, **settings, runtime__precision="BF16")
    halves = [half] if probe.multiplies_bfloat16() else []
    # It learns from its 101st step on, and replays no more than it has steps.
    clean = cleanrl("CleanRL, its own network", "dqn_atari.py", "--env-id", "PongNoFrameskip-v4", "--learning-starts",
                    "100", "--buffer-size", "10000", limit_s=limit, threads=tuned(options))
    everyone = [*halves, clean, single]
    turns(everyone, options.rounds)
    sps = "steps_per_second"
    return section("Pong by DQN", everyone,
                   [report.table(everyone, sps, "steps a second", everyone[0]), report.resources(everyone, turns)],
                   [report.verdict(f"{who.name}: at least 150 steps a second", who.median(sps), 150)
                    for who in [*halves, single]] +
                   [report.verdict(f"{everyone[0].name} are ahead of CleanRL", everyone[0].median(sps),
                                   clean.median(sps))],
                   "Ours learn with the network and the numbers of DI-engine's pong_dqn_ddp_config.py: 14 million weights, "
                   "3.3 transitions a step. CleanRL's has 1.7 million, and learns from 8 transitions a step.")


def read_learning(output, folder):
    """read_run of what is learned: steps at random before it are no work."""
    return ours.read_run(output, folder, lambda line: line["losses/critic_loss"] != 0)


def pendulum(options, turns):
    """CleanRL's sac_continuous_action.py: 256 × 256, a gradient step of 256 transitions for each step."""
    limit = 10 if options.quick else 20
    # Of as many transitions a step: five forward passes towards y and the critics' loss and three for the policy's,
    # backward through both critics twice, of which once to the action alone, and through the actor.
    flop = dict(flop_per_step=2 * 256 * 256 * 256 * (8 + 2 * 2 + 2 + 2))
    how = dict(limit_s=limit, threads=tuned(options), **flop)
    most = max(tuned(options))
    us = [train(f"Flotilla, {n} thread{'s' * (n > 1)}", "pendulum_sac", 1, limit, read_learning, **QUIET, **flop,
                env__num_envs=1, rollout__length=1, model__hidden="[256,256]", sac__batch_size=256,
                sac__learning_starts=256, total_env_steps=10 ** 7, runtime__torch_threads=n) for n in (most, 1)]
    small = train("Flotilla, the shipped pendulum_sac: 64 × 64, 128 transitions", "pendulum_sac", 1, limit,
                  read_learning, **QUIET, total_env_steps=10 ** 7)
    clean = cleanrl("CleanRL", "sac_continuous_action.py", "--env-id", "Pendulum-v1", "--buffer-size", "100000",
                    "--learning-starts", "256", **how)
    sb3 = peer("Stable-Baselines3", "v_sb3", "sb3_pendulum.py", **how)
    everyone = [us[0], clean] + ([] if options.quick else [sb3, us[1], small])
    turns(everyone, options.rounds)
    sps = "steps_per_second"
    return section("Pendulum SAC at CleanRL's sizes (256 × 256)", everyone,
                   [report.table(everyone, sps, "steps a second, and as many gradient steps", us[0]),
                    report.resources(everyone, turns)],
                   [report.verdict(f"{us[0].name} is ahead of the fastest peer", us[0].median(sps),
                                   fastest([clean, sb3], sps))],
                   "One environment: a step, then a gradient step of all networks. CleanRL's policy takes two of "
                   "them every second time.")


def native(options, turns):
    """Games in batches: PufferLib's Breakout, and ours of the same rules."""
    limit = 8 if options.quick else 20
    alone = QUIET | dict(evaluation__every_updates=10 ** 6, total_env_steps=10 ** 9)
    one, two = (train(f"Flotilla, {n} learner{'s' * (n > 1)}", "native_breakout", n, limit, **alone, **settings)
                for n, settings in ((1, {}), (2, dict(env__num_envs=512))))
    half = train("Flotilla, 2 learners in bfloat16", "native_breakout", 2, limit, **alone, env__num_envs=512,
                 runtime__precision="BF16")
    halves = [half] if probe.multiplies_bfloat16() and not options.quick else []
    shared = train(f"Flotilla, 1 learner, {options.cores} threads", "native_breakout", 1, limit, **alone,
                   runtime__torch_threads=options.cores)
    how = dict(limit_s=limit, threads=tuned(options))
    mlp = peer("PufferLib, 1,024 games, without LSTM", "v_puffer", "puffer_breakout.py", "mlp", **how)
    own = peer("PufferLib, its breakout.ini: 8,192 games, LSTM", "v_puffer", "puffer_breakout.py", "own", **how)
    everyone = [two, mlp, one] + ([] if options.quick else [*halves, shared, own])
    turns(everyone, options.rounds)
    sps = "steps_per_second"
    return section("Native Breakout", everyone,
                   [report.table(everyone, sps, "agents' steps a second", two), report.resources(everyone, turns)],
                   [report.verdict("two learners in bfloat16: at least 2,000,000 agents' steps a second",
                                   half.median(sps), 2e6) for half in halves] +
                   [report.verdict("two learners: at least 1,000,000 agents' steps a second", two.median(sps), 1e6),
                    report.verdict("two learners are ahead of PufferLib's fastest", two.median(sps),
                                   fastest([mlp, own], sps))],
                   "The network of all but PufferLib's own is of 128 units.")


def scaling(options, turns):
    """Environments that sleep 5 ms a step: what the machinery costs as learners are added."""
    limit = 6 if options.quick else 15
    learners = [train(f"{n} learner{'s' * (n > 1)}", "sleep_scaling", n, limit, total_env_steps=10 ** 9, **QUIET)
                for n in (1, 2, 4)]
    # Steps of 2 ms, 64 a rollout; one of four ranks sleeps ten times as long.
    slow = dict(env__num_workers=1, env__groups=1, env__num_envs=4, env__options__sleep__step_ms=2,
                total_env_steps=10 ** 9, runtime__deterministic="false", **QUIET)
    even = train("four ranks alike", "sleep_scaling", 4, limit, **slow)
    slow["env__options__sleep__slow_workers"] = 1
    waits = train("one ten times slower, all wait", "sleep_scaling", 4, limit, **slow)
    cuts = train("one ten times slower, preemption at 0.6", "sleep_scaling", 4, limit,
                 distributed__preemption_fraction=0.6, distributed__preemption_min_rollout=0.1, **slow)
    turns([*learners, even, waits, cuts], options.rounds)
    sps, seconds = "steps_per_second", "update_seconds"
    one = learners[0].median(sps)
    return section(
        "Scaling with environments that sleep", [*learners, even, waits, cuts],
        [report.table(learners, sps, "steps a second", learners[0]),
         report.table([even, waits, cuts], seconds, "seconds an update", even)],
        [report.verdict(f"{n} learners: at least 0.95 of {n} times one learner's steps a second", who.median(sps),
                        times(0.95 * n, one)) for n, who in ((2, learners[1]), (4, learners[2]))] +
        [report.verdict("with preemption, an update takes at most 1.5 times the undisturbed", cuts.median(seconds),
                        times(1.5, even.median(seconds)), at_least=False, unit=" s"),
         report.verdict("without, more than 2 times", waits.median(seconds), times(2, even.median(seconds)), unit=" s")],
        "Seconds an update: four ranks, 64 steps of 2 ms in 4 environments each; nobody is cut short before "
        "distributed.preemption_min_rollout = 0.1 of a rollout (0.25 by default), nor before 0.6 of the ranks are done.")


def gymnasium(options, turns):
    """An environment of Gymnasium's whose step takes 1 ms, and its processes alone."""
    limit = 4 if options.quick else 10
    python, source = ours.tests_python(), os.path.join(ours.REPOSITORY, "tests", "bench", "envs")
    sps, tables, verdicts, everyone = "steps_per_second", [], [], []

    def learn(name, kind, processes, learners, **settings):
        who = train(f"{kind}: Flotilla, {name}", "cartpole_ppo", learners, limit, **QUIET, total_env_steps=10 ** 9,
                    env__id="gym:millisecond:Millisecond-v0", env__options__kwargs__kind=kind,
                    env__num_workers=processes // learners, **settings)
        who.env = {"FLOTILLA_PYTHON": python, "PYTHONPATH": source}
        return who

    cores = options.cores
    for kind, processes, enough in [
            ("busy", cores, [("a learner for each, 4 environments a process", cores, {}),
                             ("1 learner, 4 environments a process, in 2 groups", 1,
                              dict(env__num_envs=4 * cores, env__groups=2))]),
            # They leave the cores to others.
            ("waits", 2 * cores, [("1 learner, 8 environments a process, in 2 groups", 1,
                                   dict(env__num_envs=16 * cores, env__groups=2))])]:
        alone = Contender(f"{kind}: {processes} processes alone",
                          [python, os.path.join(source, "millisecond.py"), kind, str(processes), str(limit)], peer_line,
                          cap_s=limit + 30)
        us = [learn(name, kind, processes, learners, **settings) for name, learners, settings in enough]
        few = learn("1 learner, 1 environment a process", kind, processes, 1, env__num_envs=processes)
        turns([alone, *us, few], options.rounds)
        everyone += [alone, *us, few]
        tables.append(report.table([alone, *us, few], sps, "steps a second", alone))
        verdicts += [report.verdict(f"{who.name}: at least 95 % of its processes alone", who.median(sps),
                                    times(0.95, alone.median(sps))) for who in us]
    return section("A Gymnasium environment whose step takes 1 ms", everyone, tables, verdicts,
                   "busy computes for about 1 ms of a core (what its processes reach alone says how long), so that whatever "
                   "a learner does is taken from it; waits sleeps for 1 ms. A process that has one environment waits after "
                   "each of its steps, for the others, for a decision, and to be woken.")


def watched_of(config, **settings):
    def group(options, turns):
        """What it costs to record episodes, to track and to follow a run on three pages, once the tracker's packages
        are loaded, which takes some seconds of a core."""
        limit = 12 if options.quick else 30
        alone = train("not recorded", config, 2, limit, **settings, episodes__record="false")
        recorded = train("recorded", config, 2, limit, **settings)
        followed = watch.START + watch.TURN * watch.TURNS
        seen = train("recorded, tracked, three pages", config, 2, followed + watch.TURN, read_shares, **settings)
        seen.command = [sys.executable, watch.__file__, "{run}", *seen.command, "--track", "trackio"]
        # The tracker's packages are those of the tests.
        seen.env = {"FLOTILLA_PYTHON": ours.tests_python()}
        turns([alone, recorded, seen], options.rounds)
        sps = "steps_per_second"
        pairs = [b / a for a, b in zip(alone.metrics[sps], recorded.metrics[sps])]
        shares, took = seen.metrics.get("of_held", []), seen.metrics.get("took", [])
        wanted = "at least 99"
        return section(
            f"What it costs to be seen: {config}, two learners", [alone, recorded, seen],
            [report.table([alone, recorded], sps, "steps a second", recorded)],
            [report.verdict(f"recorded, per cent of not recorded, by pairs, {wanted}", 100 * statistics.median(pairs), 99),
             report.verdict(f"tracked and on three pages, per cent of the turns in which that is held, {wanted}",
                            100 * statistics.median(shares) if shares else None, 99),
             report.verdict("side-car and dashboard took, per cent of all cores, at most 1",
                            100 * statistics.median(took) / options.cores if took else None, 1, at_least=False)],
            "Side-car, dashboard and what reads its pages run on the learners' own two cores. Nothing draws the pages. Of "
            f"each pair: {', '.join(f'{x:.3f}' for x in pairs)}. Median of the turns of each run, of "
            f"{watch.TURN} seconds: held, making up for what was missed, going: "
            f"{', '.join(f'{x:.4f}' for x in shares)}. Of one core, side-car and dashboard took while they were going "
            f"{', '.join(f'{100 * x:.2f}' for x in took)} %.")
    return group


def read_shares(output, folder):
    updates = [(x["wall_seconds"], x["global_step"]) for x in ours.metric_lines(folder) if "charts/SPS" in x]
    found = watch.shares(output, updates)
    took = [float(x) for x in re.findall(r"^took ([\d.]+)$", output, re.M)]
    return {"of_held": statistics.median(found), "took": statistics.median(took)} if found and took else {}


def memory_of(case):
    def group(options, turns):
        seconds = options.memory_seconds or (20 if options.quick else 600)
        return memory.section(case, seconds, options.cores)

    return group


def kernels(options, turns):
    path, missing = ours.program("flotilla_mlp_kernels_bench", ours.BENCH_BIN)
    if missing:
        say(f"  {missing}")
        return f"## CPU kernels\n\n{missing}"
    done = turns.program([path], timeout=120)
    return f"## CPU kernels\n\n```\n{(done.stdout + done.stderr).strip()}\n```"


def coordinator(options, turns):
    """1,000 learners and 10,000 env servers on loopback, all simulated by one process."""
    learners, servers = (100, 1000) if options.quick else (1000, 10_000)
    path, missing = ours.program("coordinator_load_test", os.path.join(ours.BENCH_BIN, "../services/coordinator"))
    if missing:
        say(f"  {missing}")
        return f"## Coordinator under load\n\n{missing}"
    env = os.environ | {"FLOTILLA_BIN": ours.BIN, "FLOTILLA_LOAD_LEARNERS": str(learners), "FLOTILLA_LOAD_ENV_SERVERS": str(servers)}
    done = turns.program([path], timeout=300, env=env)
    found = [line for line in done.stdout.splitlines() if "env servers:" in line]
    lines = found or (done.stdout + done.stderr).splitlines()[-8:]
    command = f"FLOTILLA_LOAD_LEARNERS={learners} FLOTILLA_LOAD_ENV_SERVERS={servers} coordinator_load_test"
    return "\n\n".join(["## Coordinator under load", "```\n" + "\n".join(lines) + "\n```",
                        f"- **{'met' if done.returncode == 0 else 'NOT MET'}**: nobody is taken for dead and a fence "
                        "reaches everybody", "Command:", f"- `{command}`"])


ALL = {"cartpole": cartpole, "fast": fast, "envservice": envservice, "atari": atari, "breakout": breakout, "dqn": dqn,
       "pendulum": pendulum, "native": native, "gymnasium": gymnasium, "scaling": scaling, "coordinator": coordinator,
       "memory": memory_of(memory.cartpole), "memory_atari": memory_of(memory.breakout), "kernels": kernels,
       "watched": watched_of("cartpole_fast", evaluation__every_updates=10 ** 6, total_env_steps=10 ** 12),
       "watched_atari": watched_of("breakout_ppo", env__num_envs=4, runtime__torch_threads=1, **QUIET)}
