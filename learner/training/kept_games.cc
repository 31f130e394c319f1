#include "learner/training/kept_games.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace flotilla {
namespace {

// Games between two looks at the median.
constexpr int64_t kLook = 16;

}  // namespace

void KeptGames::Ring::Take(size_t most, v1::RecordedGame* from) {
  if (most == 0) return;
  if (game.size() < most) game.emplace_back();
  if (next >= most) next = 0;
  game[next++].Swap(from);
}

std::vector<const v1::RecordedGame*> KeptGames::Ring::Newest() const {
  std::vector<const v1::RecordedGame*> newest;
  for (size_t i = 0; i < game.size(); ++i) {
    newest.push_back(&game[(next + game.size() - 1 - i) % game.size()]);
  }
  return newest;
}

void KeptGames::Take(v1::RecordedGame* game) {
  game->set_number(++taken_);
  if (game->end() == v1::RecordedGame::CRASHED) {
    return crashed_.Take(kFailed, game);
  }
  if (game->end() == v1::RecordedGame::UNUSABLE) {
    return unusable_.Take(kFailed, game);
  }
  if (!best_ || game->score() > best_->score()) best_ = *game;
  if (!worst_ || game->score() < worst_->score()) worst_ = *game;
  LookForMedian(*game);
  over_.Take(static_cast<size_t>(newest_), game);
}

// The median moves on with what is learnt: what was near to it once gives way.
void KeptGames::LookForMedian(const v1::RecordedGame& game) {
  if (scores_.size() < kWindow) {
    scores_.push_back(game.score());
  } else {
    scores_[static_cast<size_t>(over_taken_ % kWindow)] = game.score();
  }
  if (over_taken_++ % kLook == 0 || scores_.size() < kLook) {
    sorted_ = scores_;
    const auto middle =
        sorted_.begin() + static_cast<int64_t>((sorted_.size() - 1) / 2);
    std::nth_element(sorted_.begin(), middle, sorted_.end());
    middle_ = *middle;
  }
  if (!median_ ||
      std::abs(game.score() - middle_) < std::abs(median_->score() - middle_)) {
    median_ = game;
  }
}

void KeptGames::AddTo(v1::RecordedGames* games) const {
  std::map<uint64_t, v1::RecordedGame*> known;  // by the seed it began with
  const auto add = [&](const v1::RecordedGame& game, const char* as) {
    v1::RecordedGame*& kept = known[game.episode(0).seed()];
    if (kept == nullptr) {
      kept = games->add_game();
      *kept = game;
      kept->clear_kept_as();
    }
    kept->add_kept_as(as);
  };
  if (best_) add(*best_, "best");
  if (median_) add(*median_, "median");
  if (worst_) add(*worst_, "worst");
  for (const v1::RecordedGame* game : over_.Newest()) add(*game, "newest");
  for (const v1::RecordedGame* game : crashed_.Newest()) add(*game, "crashed");
  for (const v1::RecordedGame* game : unusable_.Newest()) {
    add(*game, "unusable");
  }
}

void KeptGames::Restore(const v1::RecordedGames& games) {
  std::map<int64_t, const v1::RecordedGame*> in_order;
  for (const v1::RecordedGame& game : games.game()) {
    in_order[game.number()] = &game;
  }
  for (const auto& [number, game] : in_order) {
    taken_ = std::max(taken_, number);
    for (const std::string& as : game->kept_as()) {
      v1::RecordedGame copy = *game;
      if (as == "best") best_ = *game;
      if (as == "worst") worst_ = *game;
      if (as == "median") median_ = *game;
      if (as == "newest") over_.Take(static_cast<size_t>(newest_), &copy);
      if (as == "crashed") crashed_.Take(kFailed, &copy);
      if (as == "unusable") unusable_.Take(kFailed, &copy);
    }
  }
}

}  // namespace flotilla
