#ifndef FLOTILLA_TESTS_ENVSERVER_VECTOR_ENV_RIG_H_
#define FLOTILLA_TESTS_ENVSERVER_VECTOR_ENV_RIG_H_

#include <glog/logging.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "envserver/thread_vector_env.h"

namespace flotilla {

// Waits for groups, whichever thread completes them.
class Completions final : public VectorEnv::Listener {
 public:
  void OnFailure(absl::Status status) override { FAIL() << status; }
  void OnGroupDone(int group, absl::Duration delay) override {
    MutexLock lock(&mu_);
    done_.insert(group);
    thread_ = std::this_thread::get_id();
    delay_ = delay;
    cv_.notify_all();
  }

  void Await(int group) {
    MutexLock lock(&mu_);
    while (!done_.contains(group)) {
      ASSERT_TRUE(lock.WaitFor(&cv_, absl::Seconds(30))) << "group " << group;
    }
    done_.erase(group);
  }

  std::thread::id thread() {
    MutexLock lock(&mu_);
    return thread_;
  }
  absl::Duration delay() {
    MutexLock lock(&mu_);
    return delay_;
  }

 private:
  Mutex mu_;
  std::condition_variable cv_;
  std::set<int> done_ ABSL_GUARDED_BY(mu_);
  std::thread::id thread_ ABSL_GUARDED_BY(mu_);
  absl::Duration delay_ ABSL_GUARDED_BY(mu_);
};

// One vector env with memory for its groups.
class Rig {
 public:
  using Make = std::function<absl::StatusOr<std::unique_ptr<VectorEnv>>(
      VectorEnv::Listener*)>;

  Rig(ThreadVectorEnv::Options options, ThreadVectorEnv::MakeEnv make)
      : Rig(options.num_envs, options.num_groups,
            [&](VectorEnv::Listener* listener) {
              return ThreadVectorEnv::Make(options, std::move(make), listener);
            }) {}

  Rig(int num_envs, int num_groups, const Make& make)
      : rows_(num_envs / num_groups), steps_(num_groups) {
    auto made = make(&done_);
    CHECK(made.ok()) << made.status();
    env_ = *std::move(made);
    for (int g = 0; g < num_groups; ++g) {
      memory_.emplace_back();
      for (const v1::Leaf& leaf : env_->spec().observation()) {
        size_t bytes = leaf.dtype() == v1::INT64     ? 8
                       : leaf.dtype() == v1::FLOAT32 ? 4
                                                     : 1;
        for (int64_t dim : leaf.shape()) bytes *= dim;
        memory_.back().emplace_back(bytes * rows_);
      }
    }
    for (auto& group : memory_) {
      spans_.emplace_back(group.begin(), group.end());
    }
  }

  v1::StepBatch& Reset(int group = 0) {
    env_->Reset(group, spans_[group], &steps_[group]);
    done_.Await(group);
    return steps_[group];
  }

  // Every row takes `action`.
  v1::StepBatch& Step(int64_t action = 0, int group = 0) {
    Begin(action, group);
    done_.Await(group);
    return steps_[group];
  }

  void Begin(int64_t action, int group) {
    BeginEach(std::vector<int64_t>(static_cast<size_t>(rows_), action), group);
  }

  // Row r takes each[r].
  v1::StepBatch& StepEach(const std::vector<int64_t>& each, int group = 0) {
    BeginEach(each, group);
    done_.Await(group);
    return steps_[group];
  }

  template <typename T>
  T Observed(int leaf, int row, int group = 0) {
    const auto& memory = memory_[group][leaf];
    return ReadValue<T>(std::span(memory).subspan(row * memory.size() / rows_));
  }

  // Everything a learner would see of `group`.
  std::string Snapshot(int group) {
    std::string all;
    {  // Maps in one order.
      google::protobuf::io::StringOutputStream bytes(&all);
      google::protobuf::io::CodedOutputStream coded(&bytes);
      coded.SetSerializationDeterministic(true);
      EXPECT_TRUE(steps_[group].SerializeToCodedStream(&coded));
    }
    for (const auto& leaf : memory_[group]) {
      all.append(reinterpret_cast<const char*>(leaf.data()), leaf.size());
    }
    return all;
  }

  Completions& done() { return done_; }
  VectorEnv& env() { return *env_; }
  void Destroy() { env_.reset(); }

 private:
  void BeginEach(const std::vector<int64_t>& each, int group) {
    v1::ActionBatch& actions = actions_[group];
    actions.Clear();
    actions.add_action(reinterpret_cast<const char*>(each.data()),
                       each.size() * sizeof(each[0]));
    env_->Step(group, actions, spans_[group], &steps_[group]);
  }

  const int rows_;
  Completions done_;
  std::vector<v1::StepBatch> steps_;
  std::map<int, v1::ActionBatch> actions_;
  std::vector<std::vector<std::vector<std::byte>>> memory_;
  std::vector<std::vector<std::span<std::byte>>> spans_;
  std::unique_ptr<VectorEnv> env_;
};

inline std::vector<float> Rewards(const v1::StepBatch& step) {
  std::vector<float> rewards(step.reward().size() / 4);
  std::memcpy(rewards.data(), step.reward().data(), step.reward().size());
  return rewards;
}

inline std::vector<int> Flags(const std::string& flags) {
  return std::vector<int>(flags.begin(), flags.end());
}

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_ENVSERVER_VECTOR_ENV_RIG_H_
