#include "learner/training/game_keeper.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "glog/logging.h"
#include "google/protobuf/util/message_differencer.h"
#include "services/base/steady_now.h"
#include "services/env/recorded_games.h"

namespace flotilla {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(5);
constexpr double kMostShare = 0.01;  // of the thread's time

// Whether games of the one are games of the other.
bool SameGames(v1::RecordedGames one, v1::RecordedGames other) {
  one.clear_game();
  other.clear_game();
  return google::protobuf::util::MessageDifferencer::Equals(one, other);
}

}  // namespace

GameKeeper::GameKeeper(const std::string& path, v1::RecordedGames games,
                       int newest)
    : path_(path), empty_(std::move(games)), kept_(newest) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      error);
  if (const auto before = ReadGames(path);
      before.ok() && SameGames(*before, empty_)) {
    kept_.Restore(*before);
  }
  thread_ = std::thread([this] { ThreadMain(); });
}

GameKeeper::~GameKeeper() {
  {
    MutexLock lock(&mu_);
    closing_ = true;
    over_.notify_all();
  }
  thread_.join();
}

void GameKeeper::Take(int64_t /*env*/, v1::RecordedGame* game) {
  game->set_global_step(global_step_);
  MutexLock lock(&mu_);
  kept_.Take(game);
  changed_ = true;
}

void GameKeeper::ThreadMain() {
  absl::Duration period = kPeriod;
  for (bool closing = false; !closing;) {
    bool changed = false;
    {
      const absl::Time next = SteadyNow() + period;
      MutexLock lock(&mu_);
      while (!closing_ && SteadyNow() < next) {
        lock.WaitFor(&over_, next - SteadyNow());
      }
      closing = closing_;
      changed = std::exchange(changed_, false);
    }
    if (!changed) continue;
    const absl::Time began = SteadyNow();
    if (!Write()) {  // with the next, or with what is left
      MutexLock lock(&mu_);
      changed_ = true;
    }
    period = std::max(kPeriod, (SteadyNow() - began) / kMostShare);
  }
}

bool GameKeeper::Write() {
  v1::RecordedGames games = empty_;
  {
    MutexLock lock(&mu_);
    kept_.AddTo(&games);
  }
  const absl::Status written = WriteGames(path_, games);
  LOG_IF(WARNING, !written.ok() && !complained_)
      << "games cannot be seen again: " << written.message();
  complained_ = !written.ok();
  return written.ok();
}

}  // namespace flotilla
