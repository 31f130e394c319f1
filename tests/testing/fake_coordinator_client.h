#ifndef FLOTILLA_TESTS_TESTING_FAKE_COORDINATOR_CLIENT_H_
#define FLOTILLA_TESTS_TESTING_FAKE_COORDINATOR_CLIENT_H_

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/steady_now.h"
#include "services/coordinator/coordinator_client.h"

namespace flotilla {

// A coordinator in a folder, without a server: every key is a file, and so are
// fences, the newest evaluation, stop and the run's end. Clients of one folder see each other, be they threads or
// processes; one that dies leaves no trace. Make a client after fork, not
// before: it has a thread, which looks for fences.
//
// Thread-safe.
class FakeCoordinatorClient : public CoordinatorClient {
 public:
  explicit FakeCoordinatorClient(std::string folder)
      : folder_(std::move(folder)),
        watch_([this](std::stop_token stop) { WatchFences(stop); }) {}

  // What JoinGeneration returns: the first of these that is not fenced.
  void SetAssignment(const v1::Assignment& assignment) {
    SetAssignments({assignment});
  }
  void SetAssignments(std::vector<v1::Assignment> assignments) {
    std::lock_guard lock(mu_);
    assignments_ = std::move(assignments);
  }
  // What JoinGeneration fails with from here on.
  void RefuseJoins(const absl::Status& refusal) {
    std::lock_guard lock(mu_);
    refusal_ = refusal;
  }
  // What Latest returns.
  void SetLatest(const v1::Command& command) {
    std::lock_guard lock(mu_);
    latest_ = command;
  }
  // What GetStatus returns.
  void SetStatus(const absl::StatusOr<v1::Status>& status) {
    std::lock_guard lock(mu_);
    status_ = status;
  }
  v1::Heartbeat last_report() const {
    std::lock_guard lock(mu_);
    return report_;
  }
  // Every phase that was reported, in order.
  std::vector<v1::Phase> phases() const {
    std::lock_guard lock(mu_);
    return phases_;
  }
  std::string layout_digest() const {
    std::lock_guard lock(mu_);
    return layout_digest_;
  }
  void SetLayoutDigest(const std::string& digest) override {
    std::lock_guard lock(mu_);
    layout_digest_ = digest;
  }
  absl::StatusOr<v1::Assignment> JoinGeneration(
      uint64_t, bool, absl::Duration timeout) override {
    const absl::Time deadline = SteadyNow() + timeout;
    do {
      {
        std::lock_guard lock(mu_);
        if (!refusal_.ok()) return refusal_;
        for (const v1::Assignment& assignment : assignments_) {
          if (!IsFenced(assignment.generation())) return assignment;
        }
      }
      absl::SleepFor(absl::Milliseconds(1));
    } while (SteadyNow() < deadline);
    return absl::DeadlineExceededError("no generation has formed");
  }

  std::stop_token Fence(uint64_t generation) override {
    std::lock_guard lock(mu_);
    std::stop_source& fence = fences_[generation];
    if (IsFenced(generation)) fence.request_stop();
    return fence.get_token();
  }

  absl::Status ReportFailure(uint64_t generation, const std::string&) override {
    std::ofstream(FencePath(generation)) << "fenced";
    RequestStops();
    return absl::OkStatus();
  }

  absl::Status Set(uint64_t generation, const std::string& key,
                   const std::string& value) override {
    if (IsFenced(generation)) return FencedError(generation);
    Put(Path(generation, key), value);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(uint64_t generation, const std::string& key,
                                  absl::Duration timeout) override {
    const absl::Status waited = Wait(generation, {key}, timeout);
    if (!waited.ok()) return waited;
    return Read(Path(generation, key));
  }

  absl::Status Wait(uint64_t generation, const std::vector<std::string>& keys,
                    absl::Duration timeout) override {
    const absl::Time deadline = SteadyNow() + timeout;
    for (const std::string& key : keys) {
      while (!std::filesystem::exists(Path(generation, key))) {
        if (IsFenced(generation)) return FencedError(generation);
        if (SteadyNow() >= deadline) {
          return absl::DeadlineExceededError(
              absl::StrCat("key \"", key, "\" is not set"));
        }
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    if (IsFenced(generation)) return FencedError(generation);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Add(uint64_t generation, const std::string& key,
                              int64_t amount) override {
    if (IsFenced(generation)) return FencedError(generation);
    FolderLock lock(folder_);
    const std::string path = Path(generation, key);
    int64_t value = 0;
    if (std::filesystem::exists(path) &&
        !absl::SimpleAtoi(Read(path), &value)) {
      return absl::InvalidArgumentError(absl::StrCat(key, " is no number"));
    }
    Put(path, absl::StrCat(value + amount));
    return value + amount;
  }

  absl::StatusOr<std::string> CompareSet(uint64_t generation,
                                         const std::string& key,
                                         const std::string& expected,
                                         const std::string& desired) override {
    if (IsFenced(generation)) return FencedError(generation);
    FolderLock lock(folder_);
    const std::string path = Path(generation, key);
    const std::string value =
        std::filesystem::exists(path) ? Read(path) : std::string();
    if (value != expected) return value;
    Put(path, desired);
    return desired;
  }

  absl::StatusOr<bool> Check(uint64_t generation,
                             const std::vector<std::string>& keys) override {
    if (IsFenced(generation)) return FencedError(generation);
    for (const std::string& key : keys) {
      if (!std::filesystem::exists(Path(generation, key))) return false;
    }
    return true;
  }

  absl::StatusOr<bool> Delete(uint64_t generation,
                              const std::string& key) override {
    if (IsFenced(generation)) return FencedError(generation);
    return std::filesystem::remove(Path(generation, key));
  }

  absl::StatusOr<int64_t> Count(uint64_t generation) override {
    if (IsFenced(generation)) return FencedError(generation);
    int64_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      count += absl::StartsWith(entry.path().filename().string(),
                                absl::StrCat("key.", generation, "."));
    }
    return count;
  }

  void Report(const v1::Heartbeat& progress) override {
    std::lock_guard lock(mu_);
    report_ = progress;
    phases_.push_back(progress.phase());
  }
  v1::Command Latest() const override {
    v1::Command command;
    {
      std::lock_guard lock(mu_);
      command = latest_;
    }
    if (std::filesystem::exists(folder_ + "/closed")) command.set_closed(true);
    if (std::filesystem::exists(folder_ + "/stop")) command.set_stop(true);
    if (std::filesystem::exists(folder_ + "/preempted")) {
      command.set_preempted(true);
    }
    if (std::filesystem::exists(folder_ + "/evaluation")) {
      command.mutable_evaluation()->ParseFromString(
          Read(folder_ + "/evaluation"));
    }
    return command;
  }
  std::stop_token RunStopped() const override {
    return run_stopped_.get_token();
  }
  absl::Status ReportEvaluation(const v1::Evaluation& evaluation) override {
    FolderLock lock(folder_);
    if (evaluation.round() > Latest().evaluation().round()) {
      Put(folder_ + "/evaluation", evaluation.SerializeAsString());
    }
    return absl::OkStatus();
  }
  absl::Status ReportCollected(uint64_t, int64_t, double) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<v1::Member>> LeaseEnvServers(
      const std::string&, int, const std::string&,
      const std::string&) override {
    return std::vector<v1::Member>();
  }
  absl::Status ReleaseEnvServers(const std::vector<std::string>&) override {
    return absl::OkStatus();
  }
  absl::Status Leave(const std::string&) override { return absl::OkStatus(); }
  absl::Status StopRun(const std::string& reason, bool preempted) override {
    if (preempted) Put(folder_ + "/preempted", reason);
    Put(folder_ + "/stop", reason);
    run_stopped_.request_stop();
    return absl::OkStatus();
  }
  absl::Status CloseRun(const std::string& status) override {
    Put(folder_ + "/closed", status);
    return absl::OkStatus();
  }
  absl::StatusOr<v1::Status> GetStatus() override {
    std::lock_guard lock(mu_);
    return status_;
  }
  std::string run_id() const override { return "fake"; }

 private:
  class FolderLock {
   public:
    explicit FolderLock(const std::string& folder)
        : fd_(::open((folder + "/lock").c_str(), O_CREAT | O_RDWR, 0600)) {
      ::flock(fd_, LOCK_EX);
    }
    ~FolderLock() { ::close(fd_); }

   private:
    const int fd_;
  };

  std::string Path(uint64_t generation, const std::string& key) const {
    return absl::StrCat(folder_, "/key.", generation, ".",
                        absl::BytesToHexString(key));
  }
  std::string FencePath(uint64_t generation) const {
    return absl::StrCat(folder_, "/fence.", generation);
  }
  bool IsFenced(uint64_t generation) const {
    return std::filesystem::exists(FencePath(generation));
  }
  static absl::Status FencedError(uint64_t generation) {
    return absl::AbortedError(
        absl::StrCat("generation ", generation, " is fenced"));
  }

  // Whole or not at all.
  void Put(const std::string& path, const std::string& value) const {
    static std::atomic<int> serial = 0;
    const std::string aside =
        absl::StrCat(folder_, "/tmp.", ::getpid(), ".", serial++);
    std::ofstream(aside, std::ios::binary) << value;
    std::rename(aside.c_str(), path.c_str());
  }
  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream value;
    value << in.rdbuf();
    return value.str();
  }

  void RequestStops() {
    std::vector<std::stop_source> fenced;
    {
      std::lock_guard lock(mu_);
      for (auto& [generation, fence] : fences_) {
        if (IsFenced(generation)) fenced.push_back(fence);
      }
    }
    // Outside the lock: callbacks run here.
    for (std::stop_source& fence : fenced) fence.request_stop();
  }

  void WatchFences(std::stop_token stop) {
    while (!stop.stop_requested()) {
      RequestStops();
      absl::SleepFor(absl::Milliseconds(2));
    }
  }

  const std::string folder_;
  mutable std::mutex mu_;
  std::map<uint64_t, std::stop_source> fences_;
  std::vector<v1::Assignment> assignments_;
  absl::Status refusal_;
  v1::Command latest_;
  absl::StatusOr<v1::Status> status_ = v1::Status();
  v1::Heartbeat report_;
  std::string layout_digest_;
  std::vector<v1::Phase> phases_;
  std::stop_source run_stopped_;
  std::jthread watch_;  // last: it uses the others
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_TESTING_FAKE_COORDINATOR_CLIENT_H_
