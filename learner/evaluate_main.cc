#include "learner/evaluate_main.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "learner/algo/algorithm.h"
#include "learner/algo/algorithm_plugin.h"
#include "learner/checkpoint/checkpoint.h"
#include "learner/checkpoint/safetensors.h"
#include "learner/eval/decisions.h"
#include "learner/eval/evaluator.h"
#include "learner/training/run_state.h"
#include "learner/training/runtime.h"
#include "learner/training/self_play.h"
#include "services/base/config.h"
#include "services/base/host_name.h"
#include "services/base/json.h"
#include "services/base/kept_files.h"
#include "services/base/status_macros.h"
#include "services/env/agents.h"
#include "services/env/recorded_games.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

Json ToJson(const v1::RunConfig& config, const std::string& checkpoint,
            const std::vector<EvaluatedEpisode>& episodes) {
  const v1::Evaluation summary = Summarize(episodes);
  Json json = {{"env_id", config.env().id()},
               {"checkpoint", checkpoint},
               {"mean_return", summary.mean_return()},
               {"min_return", summary.min_return()},
               {"max_return", summary.max_return()},
               {"episodes", Json::array()}};
  for (const EvaluatedEpisode& played : episodes) {
    Json episode = {{"return", played.raw_return}, {"length", played.length}};
    for (const auto& [name, value] : played.metrics) {
      if (!episode.contains(name)) episode[name] = value;
    }
    json["episodes"].push_back(std::move(episode));
  }
  return json;
}

// The files that a run keeps lie beside a checkpoint that was copied or pushed
// with them, or else in the run's folder, which may have been moved since.
void FindKeptFiles(const std::string& checkpoint, v1::RunConfig* config) {
  std::error_code error;
  const fs::path folder = fs::canonical(checkpoint, error);  // of `latest`, too
  if (error) return;
  std::vector<fs::path> places = {folder};
  // Above any other folder lies what is somebody else's. `--follow` holds the
  // checkpoint that it plays in .following (launcher/follow.cc).
  const fs::path above = folder.parent_path();
  if (above.filename() == "checkpoints" || above.filename() == ".following") {
    places.push_back(above.parent_path());
  }
  for (const KeptFile& file : KeptFiles()) {
    if (file.get(*config).empty()) continue;
    for (const fs::path& place : places) {
      const fs::path kept = place / file.name;
      if (!fs::is_regular_file(kept, error)) continue;
      file.set(kept, config);
      break;
    }
  }
}

// The specification has to come from the environment itself. Leaves it: a server
// of others may take one player only.
absl::StatusOr<v1::EnvSpec> AskSpec(EnvWorkerOptions options, int rows,
                                    std::stop_token stop) {
  options.name = "probe";
  ASSIGN_OR_RETURN(const EnvWorker worker,
                   StartEnvWorker(options, /*worker_id=*/0, /*incarnation=*/1,
                                  rows, /*groups=*/1, std::move(stop)));
  worker.stream->Finish().IgnoreError();
  return worker.stream->spec();
}

absl::Status WriteTensorFile(const TensorMap& tensors,
                             const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  RETURN_IF_ERROR(WriteSafetensors(tensors, [&](const void* data, size_t size) {
    out.write(static_cast<const char*>(data),
              static_cast<std::streamsize>(size));
    return absl::OkStatus();
  }));
  out.flush();
  if (out) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("cannot write ", path));
}

}  // namespace

absl::Status EvaluateCheckpoint(const std::string& checkpoint, int episodes,
                                int decisions, const std::string& output,
                                const std::string& games,
                                const RpcCredentials& credentials,
                                const DeviceChooser& choose_device,
                                std::stop_token stop) {
  ASSIGN_OR_RETURN(CheckpointData data, LoadCheckpoint(checkpoint));
  FindKeptFiles(checkpoint, &data.config);
  // What they are compared with computes in float32.
  if (decisions > 0) data.config.mutable_runtime()->set_precision(v1::FP32);
  // Nothing is learned here: a replay, which stays empty, takes up none of a GPU.
  data.config.mutable_runtime()->set_rollouts_on(v1::HOST);
  const v1::RunConfig& config = data.config;
  RETURN_IF_ERROR(LoadCustomAlgorithm(config));
  // Where nobody named a device, it can be played without a GPU.
  RankDevice device;
  if (auto chosen = choose_device({.device = config.runtime().device()},
                                  /*local_rank=*/0);
      chosen.ok()) {
    device = *std::move(chosen);
  } else if (config.runtime().device() == "auto") {
    LOG(WARNING) << chosen.status().message() << "; playing on the CPU";
  } else {
    return chosen.status();
  }

  EnvWorkerOptions options = EvaluationWorkers(config);
  options.learner_id = "evaluate";
  options.run = absl::StrCat(HostName(), "/", getpid());
  options.server_credentials = credentials;
  options.threads = EnvThreads(options.env, /*local_world_size=*/1);
  // So many were played together in training: whole environments.
  const v1::EnvConfig& env = config.env();
  const int rows = env.num_envs() / (env.num_workers() * env.groups());
  ASSIGN_OR_RETURN(const v1::EnvSpec spec, AskSpec(options, rows, stop));
  ASSIGN_OR_RETURN(const Spaces spaces, DescribeSpaces(spec, config.model()));
  at::set_num_threads(TorchThreads(config, spaces, /*local_world_size=*/1));
  SetArithmetic(config.runtime());
  ASSIGN_OR_RETURN(const std::unique_ptr<Algorithm> algorithm,
                   MakeAlgorithm(config, spaces, device.device));
  Normalizer normalizer(config.model(), Discount(config), spaces.normalized(),
                        /*rows=*/1);
  std::optional<SelfPlay> self_play;
  std::shared_ptr<const Opponents> opponents;
  // Of decisions, the newest weights make all.
  if (config.has_selfplay() && decisions == 0) {
    self_play.emplace(config.selfplay(), algorithm.get());
  }
  Progress progress;
  RETURN_IF_ERROR(PolicyFromCheckpoint(
      data,
      LiveState(algorithm.get(), &normalizer, /*episodes=*/nullptr,
                self_play.has_value() ? &*self_play : nullptr),
      &progress));
  if (self_play.has_value()) opponents = self_play->ForEvaluation();
  algorithm->BeforeCollecting(progress.global_step);

  const TrainedEnv trained = {spec, spaces, OpponentSlots(config)};
  if (decisions > 0) {
    ASSIGN_OR_RETURN(const TensorMap recorded,
                     RecordDecisions(options, trained, algorithm->live_policy(),
                                     normalizer, decisions, stop));
    return WriteTensorFile(recorded, output);
  }
  v1::RecordedGames recorded;
  ASSIGN_OR_RETURN(
      const std::vector<EvaluatedEpisode> played,
      Evaluate(options, trained, algorithm->live_policy(), opponents.get(),
               normalizer, episodes, config.evaluation().greedy(),
               /*round=*/progress.evaluation_round + (uint64_t{1} << 32), stop,
               games.empty() ? nullptr : &recorded));
  recorded.set_round(std::max<int64_t>(1, progress.evaluation_round));
  for (v1::RecordedGame& game : *recorded.mutable_game()) {
    game.set_global_step(progress.global_step);
  }
  if (!games.empty()) RETURN_IF_ERROR(WriteGames(games, recorded));
  std::ofstream out(output);
  out << FormatJson(ToJson(config, checkpoint, played)) << "\n";
  out.flush();
  if (!out) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot write ", output));
  }
  return absl::OkStatus();
}

}  // namespace flotilla
