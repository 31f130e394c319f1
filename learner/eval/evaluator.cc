#include "learner/eval/evaluator.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "learner/actor/collector.h"
#include "services/base/config_rules.h"
#include "services/base/cores.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"
#include "services/base/steady_now.h"
#include "services/env/agents.h"
#include "services/env/recorded_games.h"

namespace flotilla {
namespace {

// Apart from every training worker's id.
constexpr uint64_t kEvaluationWorker = uint64_t{1} << 40;

// Steps between two looks at what has finished.
constexpr int64_t kStride = 16;

// The policy as the collector calls it, with the most likely actions.
class Greedy : public Policy {
 public:
  explicit Greedy(Policy* policy) : policy_(policy) {}
  void Decide(const Observations& seen, bool, Draws* draws,
              const DecisionOutput& out) override {
    policy_->Decide(seen, /*greedy=*/true, draws, out);
  }
  void Value(const Observations& seen, float* value) override {
    policy_->Value(seen, value);
  }
  int64_t state_size() const override { return policy_->state_size(); }

 private:
  Policy* const policy_;
};

// The games of each environment, in order.
class GameCollection final : public GameSink {
 public:
  void Take(int64_t env, v1::RecordedGame* game) override {
    games_[env].emplace_back().Swap(game);
  }

  // Those that count: of each row `quota` episodes, of each environment the games
  // of its `learners` rows.
  void AddTo(const std::vector<int>& quota, int learners,
             v1::RecordedGames* games) {
    for (auto& [env, played] : games_) {
      int left = 0;
      for (int i = 0; i < learners; ++i) {
        left = std::max(left, quota[env * learners + i]);
      }
      for (v1::RecordedGame& game : played) {
        // What failed is played again, and does not count.
        if (game.end() == v1::RecordedGame::OVER && left-- <= 0) break;
        games->add_game()->Swap(&game);
      }
    }
  }

 private:
  std::map<int64_t, std::vector<v1::RecordedGame>> games_;
};

}  // namespace

absl::StatusOr<std::vector<EvaluatedEpisode>> Evaluate(
    EnvWorkerOptions options, const TrainedEnv& trained, Policy* policy,
    const Opponents* opponents, const Normalizer& normalizer, int episodes,
    bool greedy, uint64_t round, std::stop_token stop,
    v1::RecordedGames* games) {
  v1::EnvConfig* env = &options.env;
  // Whole environments; more rows than episodes only where one has them.
  const int agents = SlotsOf(trained.spec);
  const int most = std::min(env->num_envs(), episodes + agents - 1);
  env->set_num_envs(std::max(1, most / agents) * agents);
  env->set_num_workers(1);
  env->set_groups(1);
  env->set_remote_workers(0);
  ASSIGN_OR_RETURN(std::unique_ptr<EnvPool> pool,
                   EnvPool::Start(options, kEvaluationWorker, round, stop));
  if (!SameLeaves(pool->spec(), trained.spec)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "env \"", env->id(),
        "\" has other spaces in evaluations than in training; "
        "evaluation.kwargs may change neither observations nor actions"));
  }
  // Its kwargs may have an environment play the other side itself.
  const int slots = SlotsOf(pool->spec());
  const int theirs = opponents == nullptr || slots == 1
                         ? 0
                         : std::min(trained.opponent_slots, slots - 1);
  GameCollection played;
  if (games != nullptr) {
    pool->Record({.sink = &played,
                  .max_bytes = std::numeric_limits<int64_t>::max(),
                  .opponent_slots = theirs});
  }
  Draws draws(SamplingSeed(options.seed, kEvaluationWorker, round));
  Greedy most_likely(policy);
  Policy* player = greedy ? static_cast<Policy*>(&most_likely) : policy;

  Normalizer scaling = normalizer.ForEvaluation();
  const std::unique_ptr<Collector> collector = MakeCollector(
      pool.get(), trained.spaces,
      {.bootstrap_truncation = false, .opponent_slots = theirs}, &scaling);
  const auto rows = static_cast<int>(collector->rows());
  Rollout steps = MakeRollout(trained.spaces, kStride, rows, /*pinned=*/false,
                              policy->state_size());
  std::vector<int> left(rows, episodes / rows);
  for (int i = 0; i < episodes % rows; ++i) ++left[i];
  const std::vector<int> quota = left;
  std::vector<EvaluatedEpisode> done;
  // When each row last made a step: its episodes may be all that is missing.
  std::vector<absl::Time> alive(rows, SteadyNow());
  CollectStats stats;
  while (static_cast<int>(done.size()) < episodes) {
    stats.episodes.clear();
    RETURN_IF_ERROR(collector->Collect(player, &draws, stop,
                                       /*preemption=*/nullptr, &steps, &stats,
                                       opponents));
    const absl::Time now = SteadyNow();
    for (int row = 0; row < rows; ++row) {
      if (left[row] == 0 || steps.valid.select(1, row).any().item<bool>()) {
        alive[row] = now;
      }
    }
    const auto dead =
        std::find_if(alive.begin(), alive.end(), [&](absl::Time since) {
          return now - since > pool->failed_rows().window();
        });
    if (dead != alive.end() && pool->failed_rows().failed() > 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("environment ", dead - alive.begin(),
                       " of the evaluation has made no step for ",
                       options.env.failed_seconds(),
                       " s (env.failed_seconds); the newest failure: ",
                       pool->failed_rows().newest()));
    }
    if (pool->failed_rows().TooMany()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "more than ", options.env.max_failed_share(),
          " of the evaluation's steps fail (env.max_failed_share): ",
          pool->failed_rows().newest()));
    }
    for (const CollectStats::Episode& e : stats.episodes) {
      if (left[e.row] == 0) continue;  // this row's quota is full
      --left[e.row];
      done.push_back({e.raw_return, e.length, {}});
      for (size_t i = 0; i < e.metrics.size(); ++i) {
        done.back().metrics[pool->spec().episode_metric(i)] = e.metrics[i];
      }
    }
  }
  if (games != nullptr) {
    *games = GamesOf(options.env, pool->spec());
    games->set_round(static_cast<int64_t>(round));
    played.AddTo(quota, slots - theirs, games);
  }
  return done;
}

void KeepGames(const RunFolder& run, int64_t round, int newest,
               const v1::RecordedGames& games) {
  std::error_code error;
  std::filesystem::create_directories(run.episodes(), error);
  const absl::Status written = WriteGames(run.evaluation_games(round), games);
  LOG_IF(WARNING, !written.ok())
      << "an evaluation cannot be seen again: " << written.message();
  std::vector<int64_t> rounds = EvaluationsIn(run);
  for (size_t i = 0; i + newest < rounds.size(); ++i) {
    std::filesystem::remove(run.evaluation_games(rounds[i]), error);
  }
}

v1::Evaluation Summarize(const std::vector<EvaluatedEpisode>& episodes) {
  v1::Evaluation e;
  e.set_episodes(episodes.size());
  if (episodes.empty()) return e;
  double sum = 0, length = 0;
  double lowest = episodes[0].raw_return, highest = lowest;
  for (const EvaluatedEpisode& one : episodes) {
    sum += one.raw_return;
    length += one.length;
    for (const auto& [name, value] : one.metrics) {
      (*e.mutable_mean_metric())[name] += value / episodes.size();
    }
    lowest = std::min(lowest, one.raw_return);
    highest = std::max(highest, one.raw_return);
  }
  e.set_mean_return(sum / episodes.size());
  e.set_mean_length(length / episodes.size());
  e.set_min_return(lowest);
  e.set_max_return(highest);
  return e;
}

EnvWorkerOptions EvaluationWorkers(const v1::RunConfig& config) {
  EnvWorkerOptions options;
  options.env = config.env();
  options.env.set_num_envs(config.evaluation().num_envs());
  for (const auto& [name, value] : config.evaluation().kwargs()) {
    (*options.env.mutable_options()->mutable_kwargs())[name] = value;
  }
  options.seed = config.seed();
  options.name = "evaluation";
  // Whole games. Another's server is told what the configuration says, no more.
  if (EnvOptionsPart(options.env) == "atari" ||
      options.env.options().has_atari()) {
    options.env.mutable_options()->mutable_atari()->set_episodic_life(false);
  }
  return options;
}

static EnvWorkerOptions WorkersBeside(const v1::RunConfig& config,
                                      const EnvWorkerOptions& options) {
  EnvWorkerOptions workers = EvaluationWorkers(config);
  workers.learner_id = options.learner_id;
  workers.run = options.run;
  workers.log_folder = options.log_folder;
  workers.credentials = options.credentials;
  workers.server_credentials = options.server_credentials;
  workers.threads = options.threads;
  return workers;
}

Evaluator::Evaluator(const v1::RunConfig& config,
                     const EnvWorkerOptions& options, const TrainedEnv& trained,
                     const RunFolder& run)
    : Evaluator(config.evaluation(),
                [this, workers = WorkersBeside(config, options), trained, run,
                 kept = config.episodes().record()
                            ? config.episodes().evaluations()
                            : 0](Policy* policy, const Opponents* opponents,
                                 const Normalizer& normalizer, uint64_t round,
                                 int64_t global_step, std::stop_token stop)
                    -> absl::StatusOr<std::vector<EvaluatedEpisode>> {
                  v1::RecordedGames games;
                  ASSIGN_OR_RETURN(
                      std::vector<EvaluatedEpisode> episodes,
                      Evaluate(workers, trained, policy, opponents, normalizer,
                               config_.episodes(), config_.greedy(), round,
                               stop, kept > 0 ? &games : nullptr));
                  for (v1::RecordedGame& game : *games.mutable_game()) {
                    game.set_global_step(global_step);
                  }
                  if (kept > 0) {
                    KeepGames(run, static_cast<int64_t>(round), kept, games);
                  }
                  return episodes;
                }) {}

Evaluator::~Evaluator() {
  stop_.request_stop();
  if (running_.valid()) running_.wait();
}

void Evaluator::Begin(std::unique_ptr<Policy> policy,
                      std::shared_ptr<const Opponents> opponents,
                      const Normalizer& normalizer, int64_t round,
                      int64_t update, int64_t global_step) {
  running_ = std::async(
      std::launch::async,
      [this, policy = std::shared_ptr<Policy>(std::move(policy)),
       opponents = std::move(opponents),
       normalizer = normalizer.ForEvaluation(), round, update,
       global_step]() -> absl::StatusOr<v1::Evaluation> {
        Unpin();  // it and its workers go beside those that train
        absl::StatusOr<std::vector<EvaluatedEpisode>> episodes;
        try {
          episodes = play_(policy.get(), opponents.get(), normalizer, round,
                           global_step, stop_.get_token());
        } catch (
            const std::exception& e) {  // Torch's; a thread that is not had
          episodes = absl::InternalError(e.what());
        }
        RETURN_IF_ERROR(episodes.status());
        v1::Evaluation e = Summarize(*episodes);
        e.set_round(round);
        e.set_update(update);
        e.set_global_step(global_step);
        e.set_stop(config_.has_stop_return() && update > 0 &&
                   e.mean_return() >= config_.stop_return());
        return e;
      });
}

std::optional<absl::StatusOr<v1::Evaluation>> Evaluator::Take() {
  if (!running_.valid() ||
      running_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return std::nullopt;
  }
  return running_.get();
}

void Evaluator::WaitFor(absl::Duration timeout) {
  if (running_.valid()) running_.wait_for(absl::ToChronoMilliseconds(timeout));
}

}  // namespace flotilla
