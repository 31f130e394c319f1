#include "learner/training/self_play.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "learner/device/host.h"

namespace flotilla {
namespace {

constexpr double kFirstRating = 1000;
constexpr double kStep = 8;  // K: what one game moves a rating at most
// Games that a snapshot is taken to have drawn before its first, and how much of
// what it has played is forgotten with each update: its opponent changes.
constexpr double kPriorGames = 2, kForgotten = 0.05;

double Expected(double mine, double other) {
  return 1 / (1 + std::pow(10, (other - mine) / 400));
}

}  // namespace

SelfPlay::SelfPlay(const v1::SelfPlayConfig& config, Algorithm* algorithm)
    : config_(config), algorithm_(algorithm) {
  int64_t bytes = 0;
  for (const NamedTensor& t : algorithm->Weights()) {
    bytes += static_cast<int64_t>(t.tensor.nbytes());
  }
  weights_ = torch::zeros({config.pool_size(), bytes}, torch::kUInt8);
  numbers_ = torch::zeros({config.pool_size() + 1, kColumns}, torch::kFloat64);
  games_ = torch::zeros({1}, torch::kFloat64);
  numbers_.select(1, kId).fill_(-1);
  At(pool_size(), kRating) = kFirstRating;
}

double& SelfPlay::At(int64_t place, Column column) const {
  return Host<double>(numbers_)[place * kColumns + column];
}

int64_t SelfPlay::snapshots() const {
  int64_t count = 0;
  while (count < pool_size() && At(count, kId) >= 0) ++count;
  return count;
}

void SelfPlay::Committed(int64_t update) {
  const bool first = snapshots() == 0;
  if (!first && update % config_.snapshot_every_updates() != 0) return;
  const int64_t mine = pool_size();
  if (!first && config_.win_rate_to_snapshot() > 0) {
    const double games = At(mine, kGames);
    if (games == 0 ||
        At(mine, kScore) / games < config_.win_rate_to_snapshot()) {
      return;
    }
  }
  if (snapshots() == pool_size()) {  // the oldest goes
    policies_.erase(static_cast<int64_t>(At(0, kId)));
    const int64_t kept = pool_size() - 1;
    weights_.narrow(0, 0, kept).copy_(weights_.narrow(0, 1, kept).clone());
    numbers_.narrow(0, 0, kept).copy_(numbers_.narrow(0, 1, kept).clone());
    At(kept, kId) = -1;
  }
  const int64_t place = snapshots();
  uint8_t* to = Host<uint8_t>(weights_) + place * weights_.size(1);
  for (const NamedTensor& t : algorithm_->Weights()) {
    const torch::Tensor whole = t.tensor.detach().to(torch::kCPU).contiguous();
    std::memcpy(to, HostBytes(whole), whole.nbytes());
    to += whole.nbytes();
  }
  At(place, kId) = static_cast<double>(update);
  At(place, kRating) = At(mine, kRating);
  At(place, kGames) = At(place, kScore) = 0;
  At(mine, kGames) = At(mine, kScore) = 0;
  now_ = nullptr;
}

void SelfPlay::Add(const std::vector<GameResult>& games, Agreement* agreement) {
  const int64_t count = snapshots();
  std::vector<double> sums(2 * pool_size(), 0.0);
  for (const GameResult& game : games) {
    for (int64_t place = 0; place < count; ++place) {
      if (static_cast<int64_t>(At(place, kId)) != game.snapshot) continue;
      sums[2 * place] += 1;
      sums[2 * place + 1] += game.score;
    }
  }
  results_ = agreement->AddSums("selfplay", sums);
}

void SelfPlay::Take(const Agreement& agreement) {
  const std::span<const double> sums = agreement[results_];
  const int64_t mine = pool_size();
  double all = 0, won = 0;
  for (int64_t place = 0; place < snapshots(); ++place) {
    const double games = sums[2 * place], score = sums[2 * place + 1];
    all += games;
    won += score;
    At(place, kGames) = (1 - kForgotten) * At(place, kGames) + games;
    At(place, kScore) = (1 - kForgotten) * At(place, kScore) + score;
    // As if each game had ended like the mean of them, one after another.
    for (int64_t i = 0; i < static_cast<int64_t>(games); ++i) {
      const double step =
          kStep *
          (score / games - Expected(At(mine, kRating), At(place, kRating)));
      At(mine, kRating) += step;
      At(place, kRating) -= step;
    }
  }
  if (all == 0) return;
  At(mine, kGames) += all;
  At(mine, kScore) += won;
  Host<double>(games_)[0] += all;
  win_rate_ = won / all;
  has_win_rate_ = true;
  if (config_.opponents() == v1::RATED) now_ = nullptr;
}

std::vector<double> SelfPlay::Shares(v1::Opponents mode) const {
  const int64_t count = snapshots();
  std::vector<double> shares;
  double sum = 0;
  for (int64_t place = 0; place < count; ++place) {
    double share = 1;
    if (mode == v1::RECENT) {
      const auto older = static_cast<double>(count - 1 - place);
      share = std::exp2(-older / std::max(1.0, 0.5 * pool_size()));
    } else if (mode == v1::RATED) {
      const double wins = (At(place, kScore) + 0.5 * kPriorGames) /
                          (At(place, kGames) + kPriorGames);
      share = (1 - wins) * (1 - wins);
    }
    shares.push_back(share);
    sum += share;
  }
  for (double& share : shares) share /= sum;
  return shares;
}

std::shared_ptr<const Opponents> SelfPlay::Now() {
  if (now_ == nullptr) {
    now_ = Make(config_.opponents(), config_.latest_share(), &policies_);
  }
  return now_;
}

std::shared_ptr<const Opponents> SelfPlay::ForEvaluation() {
  std::map<int64_t, std::shared_ptr<Policy>> policies;
  return Make(v1::UNIFORM, /*latest_share=*/0, &policies);
}

std::shared_ptr<const Opponents> SelfPlay::Make(
    v1::Opponents mode, double latest_share,
    std::map<int64_t, std::shared_ptr<Policy>>* policies) {
  auto made = std::make_shared<Opponents>();
  made->latest_share = latest_share;
  const std::vector<double> shares = Shares(mode);
  for (size_t place = 0; place < shares.size(); ++place) {
    const auto id = static_cast<int64_t>(At(place, kId));
    std::shared_ptr<Policy>& policy = (*policies)[id];
    if (policy == nullptr) policy = PolicyOf(static_cast<int64_t>(place));
    made->players.push_back({id, policy, shares[place]});
  }
  return made;
}

// Later than it was taken: its weights take the place of the newest for a moment.
std::shared_ptr<Policy> SelfPlay::PolicyOf(int64_t place) {
  torch::NoGradGuard no_grad;
  std::vector<NamedTensor> live = algorithm_->Weights();
  std::vector<torch::Tensor> newest;
  uint8_t* from = Host<uint8_t>(weights_) + place * weights_.size(1);
  for (const NamedTensor& t : live) {
    newest.push_back(t.tensor.clone());
    // Their bytes need not be aligned.
    torch::Tensor then = torch::empty(
        t.tensor.sizes(), torch::TensorOptions().dtype(t.tensor.dtype()));
    std::memcpy(HostBytes(then), from, then.nbytes());
    from += then.nbytes();
    t.tensor.copy_(then);
  }
  algorithm_->StateWasReplaced();
  std::shared_ptr<Policy> policy = algorithm_->FreezeForPlay();
  for (size_t i = 0; i < live.size(); ++i) live[i].tensor.copy_(newest[i]);
  algorithm_->StateWasReplaced();
  return policy;
}

void SelfPlay::AppendTo(std::vector<Metric>* line) const {
  line->push_back({"charts/elo", At(pool_size(), kRating)});
  if (has_win_rate_) line->push_back({"selfplay/win_rate", win_rate_});
  line->push_back({"selfplay/games", Host<double>(games_)[0]});
  line->push_back({"selfplay/snapshots", static_cast<double>(snapshots())});
}

std::vector<NamedTensor> SelfPlay::State() const {
  return {{"selfplay.weights", weights_},
          {"selfplay.numbers", numbers_},
          {"selfplay.games", games_}};
}

}  // namespace flotilla
