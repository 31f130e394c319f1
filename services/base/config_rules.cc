#include "services/base/config_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/algorithms/algorithm_traits.h"
#include "services/base/config.h"
#include "services/base/config_ranges.h"
#include "services/base/device_choice.h"
#include "services/base/either_field.h"
#include "services/base/env_origin.h"
#include "services/base/json.h"

namespace flotilla {
namespace {

constexpr char kAtariPrefix[] = "ALE/";
constexpr char kGymPrefix[] = "gym:";
constexpr char kZooPrefix[] = "pettingzoo:";

using Problems = std::vector<ConfigProblem>;

// The multiples of `unit` around `value`, as a remedy: "use 8 or 12".
// JSON, or else a string: 8x8. But not what was meant to be JSON.
void CheckArguments(
    const std::string& field,
    const google::protobuf::Map<std::string, std::string>& arguments,
    Problems* problems) {
  constexpr std::pair<const char*, const char*> kPythonWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (const auto& [name, value] : arguments) {
    const std::string path = absl::StrCat("env.options.", field, ".", name);
    const bool json = ParseJson(value).ok();
    Require(
        json || value.find_first_of("[{\"") != 0, path,
        absl::StrCat("is ", value, ", which begins as JSON does and is none"),
        problems);
    for (const auto& [python, word] : kPythonWords) {
      Require(value != python, path,
              absl::StrCat("is ", value, "; JSON says ", word), problems);
    }
  }
}

// Which options there are, the server knows: it is asked.
void CheckOptions(const v1::EnvConfig& env, Problems* problems) {
  const v1::EnvOptions& options = env.options();
  const std::string fits = EnvOptionsPart(env);
  const std::pair<std::string, bool> parts[] = {
      {"atari", options.has_atari()},
      {"sleep", options.has_sleep()},
      {"maze", options.has_maze()},
      {"gym_kwargs", !options.gym_kwargs().empty()}};
  for (const auto& [part, set] : parts) {
    Require(
        !set || part == fits || !env.server().empty(), "env.options." + part,
        absl::StrCat("is set, but ", env.id(), " does not read it",
                     fits.empty() ? "" : " (it reads env.options." + fits + ")",
                     "; remove it"),
        problems);
  }
  CheckArguments("gym_kwargs", options.gym_kwargs(), problems);
  CheckArguments("kwargs", options.kwargs(), problems);
  for (const auto& [name, value] : options.gym_kwargs()) {
    Require(!options.kwargs().contains(name), "env.options.kwargs." + name,
            absl::StrCat("is set, and env.options.gym_kwargs.", name,
                         " too, which is what it was called before; keep one"),
            problems);
  }
}

void CheckEnv(const v1::EnvConfig& env, Problems* problems) {
  Require(!env.id().empty(), "env.id",
          "is \"\"; name an environment (`flotilla envs` lists them)",
          problems);
  const absl::Status server = ParseEnvOrigin(env.server()).status();
  Require(server.ok(), "env.server", std::string(server.message()), problems);
  const int64_t unit = int64_t{env.num_workers()} * env.groups();
  if (env.num_envs() > 0 && env.num_workers() > 0 && env.groups() > 0) {
    Require(env.num_envs() % unit == 0, "env.num_envs",
            absl::StrCat("is ", env.num_envs(),
                         ", not divisible by env.num_workers * env.groups = ",
                         env.num_workers(), " * ", env.groups(), "; ",
                         NearbyMultiples(env.num_envs(), unit)),
            problems);
  }
  CheckOptions(env, problems);
  Require(env.remote_workers() <= env.num_workers(), "env.remote_workers",
          absl::StrCat("is ", env.remote_workers(),
                       "; it must be at most env.num_workers = ",
                       env.num_workers(), ", of which they are a part"),
          problems);
  Require(
      env.dial_listen().empty() || env.remote_workers() > 0, "env.dial_listen",
      "is set, but env.remote_workers is 0: nobody who dials in would play; "
      "say how many of env.num_workers may",
      problems);
}

void CheckModel(const v1::ModelConfig& model, Problems* problems) {
  const bool cnn =
      model.encoder() == v1::NATURE_CNN || model.encoder() == v1::RESNET;
  // With leaves of their own it is what they are merged through.
  Require(!cnn || model.hidden_size() <= 1 || model.leaf_size() > 0,
          "model.hidden",
          absl::StrCat("has ", model.hidden_size(), " widths; ",
                       v1::Encoder_Name(model.encoder()),
                       " takes one, of its last linear layer"),
          problems);
  const int channels = model.conv_channels_size();
  Require(channels == 0 || channels == 3, "model.conv_channels",
          absl::StrCat("has ", channels,
                       " widths; NATURE_CNN has three convolutions: use "
                       "[32, 64, 64]"),
          problems);
  Require(channels == 0 || model.encoder() == v1::NATURE_CNN ||
              model.encoder() == v1::ENCODER_AUTO,
          "model.conv_channels",
          absl::StrCat("is set, but model.encoder ",
                       v1::Encoder_Name(model.encoder()),
                       " does not read it; remove it"),
          problems);
  Require(model.torchscript().empty() || model.recurrent() == v1::NONE,
          "model.recurrent",
          absl::StrCat("is ", v1::RecurrentCell_Name(model.recurrent()),
                       ", but model.torchscript brings a whole network, and "
                       "none with memory is supported yet; use NONE"),
          problems);
  Require(model.torchscript().empty() || model.plugin().empty(), "model.plugin",
          "is set, and so is model.torchscript: a run has one network; leave "
          "one out",
          problems);
}

void CheckEvaluation(const v1::RunConfig& config, Problems* problems) {
  const v1::EvaluationConfig& evaluation = config.evaluation();
  Require(!evaluation.has_stop_return() || evaluation.every_updates() != 0 ||
              IsPlayedElsewhere(config),
          "evaluation.stop_return",
          absl::StrCat("is ", evaluation.stop_return(),
                       ", but nothing is ever evaluated; set "
                       "evaluation.every_updates too"),
          problems);
  Require(!evaluation.at_start() || (evaluation.every_updates() != 0 &&
                                     !evaluation.has_min_training_return()),
          "evaluation.at_start",
          "is true, which needs evaluation.every_updates above 0 and no "
          "evaluation.min_training_return",
          problems);
}

void CheckCheckpoint(const v1::RunConfig& config, Problems* problems) {
  const AlgorithmTraits& algorithm = TraitsOf(config);
  Require(
      !config.checkpoint().replay() || algorithm.ReplayOf(config).capacity > 0,
      "checkpoint.replay",
      absl::StrCat("is true, but ", algorithm.name(),
                   " keeps no replay; remove it"),
      problems);
}

void CheckDistributed(const v1::DistributedConfig& distributed,
                      Problems* problems) {
  const std::string at = "distributed.";
  Require(
      distributed.dead_after_seconds() >= 2 * distributed.heartbeat_seconds(),
      at + "dead_after_seconds",
      absl::StrCat("is ", distributed.dead_after_seconds(),
                   "; it must be at least twice distributed.heartbeat_seconds "
                   "= ",
                   distributed.heartbeat_seconds(),
                   ", or whoever is late once would be declared dead"),
      problems);
}

bool IsDevice(const std::string& device) {
  if (device == "auto" || device == "cpu" || device == "cuda") return true;
  if (device == kRehearsalDevice) return true;  // flotilla-learner refuses it
  int index = -1;
  return absl::StartsWith(device, "cuda:") &&
         absl::SimpleAtoi(device.substr(5), &index) && index >= 0;
}

void CheckRuntime(const v1::RuntimeConfig& runtime, Problems* problems) {
  Require(IsDevice(runtime.device()), "runtime.device",
          absl::StrCat("is \"", runtime.device(),
                       "\"; use auto, cpu, cuda or cuda:N"),
          problems);
}

}  // namespace

std::string NearbyMultiples(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  if (below == 0) return absl::StrCat("use ", unit);
  return absl::StrCat("use ", below, " or ", below + unit);
}

bool IsGym(const std::string& env_id) {
  return absl::StartsWith(env_id, kGymPrefix) ||
         absl::StartsWith(env_id, kZooPrefix);
}

bool IsPlayedElsewhere(const v1::RunConfig& config) {
  const v1::EnvConfig& env = config.env();
  return !env.dial_listen().empty() &&
         env.remote_workers() == env.num_workers() &&
         config.evaluation().every_updates() == 0;
}

std::string EnvOptionsPart(const v1::EnvConfig& env) {
  if (!env.server().empty()) return "";
  if (absl::StartsWith(env.id(), kAtariPrefix)) return "atari";
  if (absl::StartsWith(env.id(), kGymPrefix)) return "gym_kwargs";
  if (env.id() == "Sleep") return "sleep";
  if (env.id() == "Maze") return "maze";
  return "";
}

std::vector<ConfigProblem> FindProblems(const v1::RunConfig& config) {
  Problems problems = FindBothSet(config);
  FindOutOfRange(config, &problems);
  CheckEnv(config.env(), &problems);
  CheckModel(config.model(), &problems);
  TraitsOf(config).FindProblems(config, &problems);
  CheckEvaluation(config, &problems);
  CheckCheckpoint(config, &problems);
  CheckDistributed(config.distributed(), &problems);
  Require(
      config.distributed().preemption_fraction() == 0 ||
          !config.runtime().deterministic(),
      "distributed.preemption_fraction",
      absl::StrCat("is ", config.distributed().preemption_fraction(),
                   ", which lets the clock decide how long rollouts are; set "
                   "runtime.deterministic=false too"),
      &problems);
  Require(config.distributed().preemption_fraction() == 0 ||
              CollectionOf(config) == Collection::kWhenAsked,
          "distributed.preemption_fraction",
          absl::StrCat("is ", config.distributed().preemption_fraction(),
                       ", but impala and rollout.overlap_one_update collect "
                       "ahead of the learner, and nobody is cut short; use 0"),
          &problems);
  CheckRuntime(config.runtime(), &problems);
  return problems;
}

}  // namespace flotilla
