#ifndef FLOTILLA_ENVSERVER_PART_POOL_H_
#define FLOTILLA_ENVSERVER_PART_POOL_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/base/mutex.h"

namespace flotilla {

// Runs the parts of groups: environments of a ThreadVectorEnv, or ranges of them.
//
// With one thread, they run inside Begin, in order. With more, Begin returns at
// once, and the threads take parts of all groups, first come first served.
//
// Groups are independent: each may have one Begin in flight. The destructor
// abandons what no thread has begun, and waits for the rest.
class PartPool {
 public:
  // `run` is called for each part, and `done` once for each Begin, after its last
  // part, on the thread that ran it.
  PartPool(int groups, std::function<void(int group, int part)> run,
           std::function<void(int group)> done);
  ~PartPool();

  // Before the first Begin. Errors: kInternal if there are no such threads.
  absl::Status Start(int threads);

  // `parts` is at least 1.
  void Begin(int group, int parts);

 private:
  struct Group {
    int parts = 0;
    int next = 0;  // to be claimed
    int remaining = 0;
  };

  void ThreadMain();
  // Blocks for a group and its part; nullopt: stop.
  std::optional<std::pair<int, int>> Claim();
  // Returns whether it was the group's last part.
  bool Finish(int group);

  const std::function<void(int, int)> run_;
  const std::function<void(int)> done_;
  Mutex mu_;
  std::condition_variable work_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Group> groups_ ABSL_GUARDED_BY(mu_);
  std::deque<int> queue_ ABSL_GUARDED_BY(mu_);  // groups with some to claim
  std::vector<std::thread> threads_;
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_PART_POOL_H_
