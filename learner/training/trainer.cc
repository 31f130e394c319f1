#include "learner/training/trainer.h"

#include <google/protobuf/text_format.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/actor/env_pool.h"
#include "learner/actor/rollout_source.h"
#include "learner/algo/algorithm.h"
#include "learner/eval/evaluator.h"
#include "learner/rollout/memory_needs.h"
#include "learner/rollout/placement.h"
#include "learner/torch.h"
#include "learner/training/game_keeper.h"
#include "learner/training/init_from.h"
#include "learner/training/loop_parts.h"
#include "learner/training/replay_saver.h"
#include "learner/training/run_state.h"
#include "learner/training/runtime.h"
#include "learner/training/self_play.h"
#include "learner/training/system_usage.h"
#include "learner/training/training_loop.h"
#include "services/base/atomic_file.h"
#include "services/base/config.h"
#include "services/base/memory_limit.h"
#include "services/base/printable.h"
#include "services/base/run_changes.h"
#include "services/base/run_folder.h"
#include "services/base/sha256.h"
#include "services/base/status_macros.h"
#include "services/base/text_file.h"
#include "services/env/agents.h"
#include "services/env/playable.h"
#include "services/env/recorded_games.h"

namespace flotilla {
namespace {

// Tells runs apart, and is the same for all learners of one and after a restart. Of
// what env servers are told, and take 256 bytes of, it is a part.
std::string RunName(const std::string& run_folder) {
  constexpr size_t kMaxBytes = 100;
  std::error_code error;
  const auto path = std::filesystem::absolute(run_folder, error);
  return absl::StrCat(PrintableLine(RunFolder(run_folder).name(), kMaxBytes),
                      "-", Sha256Hex(path.lexically_normal()).substr(0, 8));
}

// A server of others that runs already cannot know the token that this run has
// drawn for itself, and could do with it what only the run's own may.
RpcCredentials ServerCredentials(const TrainerOptions& options) {
  RpcCredentials credentials = options.credentials;
  std::error_code error;
  if (credentials.uses_token() &&
      std::filesystem::equivalent(credentials.token_file,
                                  RunFolder(options.run_folder).token(),
                                  error)) {
    credentials.token_file.clear();
  }
  return credentials;
}

// What the weights are for, so that they can be used where the environment's
// server is not (launcher/python/flotilla).
void WriteEnvironment(const std::string& run_folder, const v1::EnvSpec& spec) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(spec, &text);
  const std::string path = RunFolder(run_folder).environment();
  if (WholeFile(path) == text) return;
  const absl::Status written = WriteFileAtomically(path, text);
  LOG_IF(WARNING, !written.ok()) << written.message();
}

// Of what the run has saved: who replaces a learner learns the rest from peers,
// when its workers have begun.
int64_t LastSavedIncarnation(const RunFolder& run) {
  if (!run.HasCheckpoint()) return 0;
  const auto saved = SavedProgress(run.latest_checkpoint());
  // If it cannot be read: whoever goes back there says so.
  return saved.ok() ? saved->env_incarnation : 0;
}

EnvWorkerOptions TrainingWorkers(const TrainerOptions& options,
                                 CoordinatorClient* coordinator) {
  EnvWorkerOptions workers;
  workers.env = options.config.env();
  workers.seed = options.config.seed();
  workers.learner_id = options.member_id;
  workers.run = RunName(options.run_folder);
  workers.log_folder = RunFolder(options.run_folder).logs();
  workers.name = absl::StrCat("rank_", options.first_rank);
  workers.credentials = options.credentials;
  workers.server_credentials = ServerCredentials(options);
  workers.threads = EnvThreads(options.config.env(), options.local_world_size);
  workers.ring_spin = RingSpin(options.config.env(), options.local_world_size);
  workers.coordinator = coordinator;
  workers.remote_timeout =
      absl::Seconds(options.config.distributed().join_timeout_seconds());
  return workers;
}

// Of whoever begins: the others, and those who come later, have it from there.
absl::Status BeginWithWeightsOf(const std::string& path,
                                const LiveState& live) {
  ASSIGN_OR_RETURN(const InitReport report, InitializeFrom(path, live));
  LOG(INFO) << "begins with " << report.taken << " tensors of " << path;
  if (report.observations > 0) {
    LOG(INFO) << "scales observations by that run's running mean and "
              << "variance, of " << report.observations << " observations";
  }
  for (const std::string& tensor : report.not_taken) {
    LOG(WARNING) << "model.init_from does not match: " << tensor;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunOutcome> Train(const TrainerOptions& options,
                                 CoordinatorClient* coordinator,
                                 const ShutdownSignals& signals) {
  const torch::Device device = options.device;
  // From here on, that the first update has something to tell.
  SystemUsage usage(device);
  std::optional<CheckpointData> saved;
  Progress progress;
  // Of a run that begins there are none: its launcher has seen to that.
  ASSIGN_OR_RETURN(const v1::Changes changes,
                   ReadChanges(RunFolder(options.run_folder).changes()));
  const RunFolder run(options.run_folder);
  if (!options.resume.empty()) {
    ASSIGN_OR_RETURN(saved, LoadCheckpoint(options.resume, options.config));
    ASSIGN_OR_RETURN(progress, ProgressFromText(saved->progress));
  }

  EnvWorkerOptions workers = TrainingWorkers(options, coordinator);
  std::unique_ptr<DialServer> dial;
  if (!options.config.env().dial_listen().empty()) {
    ASSIGN_OR_RETURN(
        dial, DialServer::Start(options.config.env().dial_listen(),
                                options.coordinator, options.credentials));
    workers.dial = dial.get();
  }
  // Above every incarnation before, so that no episode is played twice.
  const uint64_t incarnation =
      std::max(progress.env_incarnation, LastSavedIncarnation(run)) +
      (options.incarnation << 20) + 1;
  absl::StatusOr<std::unique_ptr<EnvPool>> started = EnvPool::Start(
      workers, options.first_rank * options.config.env().num_workers(),
      incarnation, signals.Stop());
  if (absl::IsCancelled(started.status()) && signals.Stop().stop_requested()) {
    // Nothing has happened yet that could be saved.
    return signals.first_signal() == SIGINT ? RunOutcome::kInterrupted
                                            : RunOutcome::kPreempted;
  }
  RETURN_IF_ERROR(started.status());
  const std::unique_ptr<EnvPool> pool = *std::move(started);
  if (options.config.episodes().record()) {
    // Only rank 0's are kept, which any may become: all count along.
    pool->Record({.max_bytes = options.config.episodes().max_bytes(),
                  .opponent_slots = OpponentSlots(options.config)});
  }
  ASSIGN_OR_RETURN(v1::RunConfig config,
                   LearnedConfig(options.config, pool->spec()));
  ASSIGN_OR_RETURN(const Spaces spaces,
                   DescribeSpaces(pool->spec(), config.model()));
  config.mutable_runtime()->set_rollouts_on(
      PlaceRollouts(config, spaces, device));
  if (options.first_rank == 0) {
    WriteEnvironment(options.run_folder, pool->spec());
  }
  at::set_num_threads(TorchThreads(config, spaces, options.local_world_size));
  SetArithmetic(config.runtime());
  for (const std::string& warning :
       PlayableWarnings(config, pool->spec(), device.is_cuda())) {
    LOG(WARNING) << warning;
  }
  RETURN_IF_ERROR(
      CheckMemory(config, spaces,
                  MemoryBudgetOf(config.runtime(), options.local_world_size)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Algorithm> algorithm,
                   MakeAlgorithm(config, spaces, device));
  Normalizer normalizer(config.model(), Discount(config), spaces.normalized(),
                        config.env().num_envs());
  EpisodeWindow episodes(config.metrics().episode_window(),
                         pool->spec().episode_metric_size());
  std::optional<SelfPlay> self_play;
  if (config.has_selfplay()) {
    self_play.emplace(config.selfplay(), algorithm.get());
  }
  const LiveState live(algorithm.get(), &normalizer, &episodes,
                       self_play.has_value() ? &*self_play : nullptr);
  if (saved.has_value()) {
    RETURN_IF_ERROR(FromCheckpoint(*saved, live, &progress));
    // A coordinator that has not seen this learner counts restarts anew, also those
    // that come before the first generation has shared its state.
    if (options.incarnation == 0) progress.assigned_restarts = 0;
  }
  std::optional<ReplaySaver> replay;
  if (config.checkpoint().replay() && algorithm->replay() != nullptr) {
    replay.emplace(run.checkpoints(), options.first_rank, algorithm.get());
  }
  const auto restore_replay = [&](const std::string& checkpoint,
                                  const Progress& of) {
    if (!replay.has_value()) return;
    replay->Restore(checkpoint, {.global_step = of.global_step,
                                 .weights_digest = WeightsDigest(live)});
  };
  if (saved.has_value()) restore_replay(options.resume, progress);
  const std::unique_ptr<RolloutSource> rollouts = MakeRolloutSource(
      {.config = config,
       .spaces = spaces,
       .pinned = !device.is_cpu(),
       .acts_on = device,
       .learned_on = MemoryOf(config, device),
       .state_size = algorithm->live_policy()->state_size(),
       .pool = pool.get(),
       .normalizer = &normalizer,
       .live_policy = algorithm->live_policy(),
       .freeze = [&] { return algorithm->Freeze(); },
       .hurry =
           [&] {
             return signals.Stop().stop_requested() ||
                    coordinator->RunStopped().stop_requested();
           },
       .opponents = [&]() -> std::shared_ptr<const Opponents> {
         return self_play.has_value() ? self_play->Now() : nullptr;
       }});

  LoopParts parts;
  parts.config = options.config;
  parts.learned = [&](const v1::RunConfig& changed) {
    return LearnedConfig(changed, pool->spec()).value_or(changed);
  };
  parts.member_id = options.member_id;
  parts.device = device;
  parts.coordinator = coordinator;
  parts.algorithm = algorithm.get();
  parts.normalizer = &normalizer;
  parts.rollouts = rollouts.get();
  parts.episodes = &episodes;
  parts.go_back = [&](Progress* now) -> absl::Status {
    if (!run.HasCheckpoint()) {
      const std::string& from = config.model().init_from();
      if (!from.empty()) RETURN_IF_ERROR(BeginWithWeightsOf(from, live));
      if (self_play.has_value()) self_play->Committed(0);
      return absl::OkStatus();
    }
    const std::string newest = run.latest_checkpoint();
    ASSIGN_OR_RETURN(const CheckpointData data,
                     LoadCheckpoint(newest, options.config));
    RETURN_IF_ERROR(FromCheckpoint(data, live, now));
    LOG(WARNING) << "nobody is left who knows what was learned: going back to "
                 << "update " << now->update << " of " << newest;
    return absl::OkStatus();
  };
  parts.take_up_replay = [&](const Progress& now) {
    if (run.HasCheckpoint()) restore_replay(run.latest_checkpoint(), now);
  };
  parts.replay = replay.has_value() ? &*replay : nullptr;
  parts.self_play = self_play.has_value() ? &*self_play : nullptr;
  parts.agents = SlotsOf(pool->spec());
  parts.episode_metrics.assign(pool->spec().episode_metric().begin(),
                               pool->spec().episode_metric().end());
  parts.env_counts = [&] {
    return EnvCounts{
        .restarts = pool->restarts(),
        .last_incarnation = static_cast<int64_t>(pool->last_incarnation())};
  };
  parts.env_workers = [&] { return pool->Describe(); };
  parts.failed_rows = &pool->failed_rows();
  parts.usage = &usage;
  parts.first_signal = [&] { return signals.first_signal(); };
  parts.stop = signals.Stop();
  const LeaderOptions leader = {
      .run_folder = options.run_folder,
      .run_config = options.run_config,
      .make_evaluator =
          [&] {
            return std::make_unique<Evaluator>(
                options.config, workers,
                TrainedEnv{pool->spec(), spaces, OpponentSlots(config)}, run);
          },
      .keep_games =
          [&] {
            std::shared_ptr<GameKeeper> games;
            if (!config.episodes().record()) return games;
            games.reset(new GameKeeper(run.training_games(),
                                       GamesOf(config.env(), pool->spec()),
                                       config.episodes().newest()),
                        [&](GameKeeper* keeper) {
                          pool->SetGameSink(nullptr);
                          delete keeper;
                        });
            pool->SetGameSink(games.get());
            return games;
          }};
  TrainingLoop loop(parts, leader, options.give_up);
  progress.changes = changes;
  loop.BeginAt(progress, /*has_state=*/saved.has_value());
  return loop.Run();
}

}  // namespace flotilla
