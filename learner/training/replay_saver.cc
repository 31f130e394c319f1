#include "learner/training/replay_saver.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "learner/replay/replay_buffer.h"

namespace flotilla {

ReplaySaver::ReplaySaver(std::string checkpoints, int rank,
                         Algorithm* algorithm)
    : checkpoints_(std::move(checkpoints)), rank_(rank), algorithm_(algorithm) {
  CHECK(algorithm->replay() != nullptr);
}

ReplaySaver::~ReplaySaver() {
  if (saving_.valid()) saving_.wait();
}

void ReplaySaver::Restore(const std::string& checkpoint,
                          const ReplayOrigin& origin) {
  absl::StatusOr<SavedReplay> saved = LoadReplay(checkpoint, rank_, origin);
  absl::Status status = saved.status();
  if (status.ok()) status = algorithm_->replay()->Restore(saved->contents);
  if (!status.ok()) {
    LOG(WARNING)
        << "begins with an empty replay, and contributes nothing until "
           "it has filled: "
        << status.message();
    return;
  }
  LOG(INFO) << "goes on with a replay of " << algorithm_->replay()->size()
            << " steps"
            << (saved->passed_over.empty()
                    ? ""
                    : absl::StrCat(", saved at step ", saved->global_step, ": ",
                                   saved->passed_over));
}

void ReplaySaver::Save(const ReplayOrigin& origin) {
  if (origin.global_step == last_.global_step &&
      origin.weights_digest == last_.weights_digest && trouble().empty()) {
    return;
  }
  if (saving_.valid()) saving_.wait();
  last_ = origin;
  const auto began = std::chrono::steady_clock::now();
  auto contents =
      std::make_unique<ReplayBuffer::Contents>(algorithm_->replay()->Copy());
  copy_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
          .count();
  saving_ =
      std::async(std::launch::async, [this, origin,
                                      copy = std::move(contents)]() mutable {
        // Gone with this thread: a future would keep it.
        const auto contents = std::move(copy);
        absl::Status saved;
        try {
          saved = SaveReplay(checkpoints_, rank_, origin, *contents);
        } catch (const std::exception& e) {  // no memory for it
          saved = absl::InternalError(e.what());
        }
        const std::string trouble =
            saved.ok() ? ""
                       : absl::StrCat("rank ", rank_, "'s replay of step ",
                                      origin.global_step,
                                      " was not written: ", saved.message(),
                                      "; the checkpoint stands without it");
        LOG_IF(ERROR, !saved.ok()) << trouble;
        MutexLock lock(&mu_);
        trouble_ = trouble;
      }).share();
}

std::string ReplaySaver::trouble() const {
  MutexLock lock(&mu_);
  return trouble_;
}

}  // namespace flotilla
