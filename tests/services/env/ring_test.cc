#include "services/env/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "google/protobuf/util/message_differencer.h"
#include "services/env/ring_layout.h"
#include "tests/testing/status_matchers.h"

namespace flotilla {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;

MATCHER_P(Holds, value, "is OK and holds it") {
  *result_listener << "which is " << arg.status();
  return arg.ok() && *arg == value;
}

v1::EnvSpec MakeSpec() {
  v1::EnvSpec spec;
  spec.set_env_id("Test");
  v1::Leaf* seen = spec.add_observation();
  seen->set_path("a");
  seen->set_dtype(v1::FLOAT32);
  seen->add_shape(3);
  v1::Leaf* frame = spec.add_observation();
  frame->set_path("b");
  frame->set_dtype(v1::UINT8);
  frame->add_shape(5);
  v1::Leaf* action = spec.add_action();
  action->set_dtype(v1::INT64);
  action->set_num_values(3);
  spec.add_episode_metric("spl");
  spec.add_episode_metric("success");
  return spec;
}

// Memory that two ends, and processes, see.
class RingTest : public testing::Test {
 protected:
  static constexpr int kGroups = 2;
  static constexpr int kRows = 3;

  RingTest()
      : spec_(MakeSpec()),
        layout_(*MakeGroupLayout(spec_, kGroups * kRows, kGroups)),
        ring_(MakeRingLayout(spec_, layout_)) {
    memory_ = mmap(nullptr, ring_.bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  ~RingTest() override { munmap(memory_, ring_.bytes); }

  std::span<std::byte> memory() const {
    return {static_cast<std::byte*>(memory_), ring_.bytes};
  }
  std::unique_ptr<Ring> Make(Ring::End end) const {
    return std::make_unique<Ring>(memory(), &ring_, end);
  }

  // Every field says `seq`.
  v1::StepBatch MakeStep(int group, uint64_t seq) const {
    const char letter = static_cast<char>('a' + seq % 26);
    v1::StepBatch step;
    step.set_group(group);
    step.set_seq(seq);
    step.set_slot(group);
    step.set_reward(std::string(kRows * 4, letter));
    step.set_terminated(std::string("\1\0\0", kRows));
    step.set_truncated(std::string("\0\0\1", kRows));
    for (const int row : {0, 2}) {
      step.add_final_row(row);
      v1::EpisodeEnd* end = step.add_episode_end();
      end->set_row(row);
      end->set_raw_return(static_cast<double>(seq));
      end->set_length(static_cast<int64_t>(seq));
      (*end->mutable_metric())["spl"] = static_cast<double>(seq);
      (*end->mutable_metric())["success"] = 1;
    }
    for (const size_t bytes : layout_.observation_bytes) {
      step.mutable_final_observation()->add_leaf(
          std::string(2 * bytes, letter));
    }
    return step;
  }

  bool Put(const v1::StepBatch& step, Ring* server) const {
    const bool fits = PutStep(spec_, layout_, ring_, step, server->NextOut());
    server->Post();
    return fits;
  }

  absl::StatusOr<bool> Take(Ring* learner, v1::StepBatch* step) const {
    auto taken = TakeStep(spec_, layout_, ring_, learner->NextIn(), step);
    learner->Take();
    return taken;
  }

  const v1::EnvSpec spec_;
  const GroupLayout layout_;
  const RingLayout ring_;
  void* memory_;
};

TEST_F(RingTest, LayoutIsWhatTheProtocolSays) {
  // 24, reward 12 -> 16, three flags of 8, final_row 12 -> 16, 3 ends of
  // 24 + 2 * 8, 3 rows of 12 -> 40 and of 5 -> 16.
  EXPECT_EQ(ring_.terminated, 40u);
  EXPECT_EQ(ring_.final_row, 64u);
  EXPECT_EQ(ring_.episode_end, 80u);
  EXPECT_EQ(ring_.final_observation, (std::vector<size_t>{200, 240}));
  EXPECT_EQ(ring_.step_bytes, 256u);
  EXPECT_EQ(ring_.action_bytes, 64u);
  EXPECT_EQ(ring_.bytes, 256u + 2 * 256 + 2 * 64);
}

TEST_F(RingTest, StepsArriveAsTheyWereInOrder) {
  const auto server = Make(Ring::End::kServer);
  const auto learner = Make(Ring::End::kLearner);
  v1::StepBatch got;
  for (uint64_t seq = 0; seq < 100; ++seq) {
    v1::StepBatch sent[] = {MakeStep(1, seq), MakeStep(0, seq)};
    sent[0].set_active(std::string("\1\0\1", kRows));
    sent[1].clear_final_row();
    sent[1].clear_episode_end();
    sent[1].mutable_final_observation()->clear_leaf();
    for (const v1::StepBatch& step : sent) EXPECT_TRUE(Put(step, server.get()));
    EXPECT_EQ(learner->Waiting(), 2u);
    for (const v1::StepBatch& step : sent) {
      EXPECT_THAT(Take(learner.get(), &got), Holds(true));
      EXPECT_TRUE(MessageDifferencer::Equals(got, step)) << got.DebugString();
    }
  }
  EXPECT_EQ(learner->Waiting(), 0u);
}

TEST_F(RingTest, ActionsArriveAsTheyWere) {
  const auto server = Make(Ring::End::kServer);
  const auto learner = Make(Ring::End::kLearner);
  v1::ActionBatch sent, got;
  sent.set_group(1);
  sent.set_seq(7);
  sent.add_action(std::string(kRows * 8, 'x'));
  ASSERT_OK(PutActions(layout_, ring_, sent, learner->NextOut()));
  learner->Post();
  ASSERT_EQ(server->Waiting(), 1u);
  TakeActions(layout_, ring_, server->NextIn(), &got);
  EXPECT_TRUE(MessageDifferencer::Equals(got, sent));
  sent.mutable_action(0)->pop_back();
  EXPECT_THAT(PutActions(layout_, ring_, sent, learner->NextOut()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("actions.action[0] has 23 bytes, want 24")));
}

TEST_F(RingTest, WhatNoEntryHoldsIsTheStreams) {
  const auto server = Make(Ring::End::kServer);
  const auto learner = Make(Ring::End::kLearner);
  const std::vector<std::function<void(v1::StepBatch*)>> unfit = {
      [](v1::StepBatch* s) { s->add_error()->set_row(1); },
      [](v1::StepBatch* s) {
        (*s->mutable_episode_end(0)->mutable_metric())["more"] = 1;
      },
      [](v1::StepBatch* s) {
        s->mutable_episode_end(0)->mutable_metric()->erase("spl");
      },
      [](v1::StepBatch* s) { s->mutable_reward()->pop_back(); },
      [](v1::StepBatch* s) { s->set_active("\1"); },
      [](v1::StepBatch* s) {
        s->mutable_final_observation()->mutable_leaf(1)->push_back('x');
      },
  };
  for (uint64_t seq = 0; seq < unfit.size(); ++seq) {
    v1::StepBatch step = MakeStep(1, seq), got;
    unfit[seq](&step);
    EXPECT_FALSE(Put(step, server.get())) << seq;
    EXPECT_THAT(Take(learner.get(), &got), Holds(false));
    EXPECT_EQ(got.group(), 1);
    EXPECT_EQ(got.seq(), seq);
  }
}

TEST_F(RingTest, CountsAndFlagsOfAStrangerAreChecked) {
  const auto server = Make(Ring::End::kServer);
  const auto learner = Make(Ring::End::kLearner);
  const std::pair<size_t, std::string> cases[] = {
      {12, "flags 77, want 0"},
      {16, "77 final rows, want 0 to 3"},
      {20, "77 episode ends, want 0 to 3"}};
  for (const auto& [at, message] : cases) {
    Put(MakeStep(0, 1), server.get());
    memory()[ring_.first_step + at] = std::byte{77};
    // Each place in turn.
    memory()[ring_.first_step + ring_.step_bytes + at] = std::byte{77};
    v1::StepBatch got;
    EXPECT_THAT(Take(learner.get(), &got),
                StatusIs(absl::StatusCode::kInternal, HasSubstr(message)));
  }
}

TEST_F(RingTest, SleeperIsWokenByAPostAndByAnInterrupt) {
  const auto server = Make(Ring::End::kServer);
  const auto learner = Make(Ring::End::kLearner);
  const auto far = Ring::Clock::now() + std::chrono::hours(1);
  v1::StepBatch step;
  // Whichever comes first, each time.
  for (uint64_t seq = 0; seq < 1000; ++seq) {
    std::thread poster([&] { Put(MakeStep(0, seq), server.get()); });
    while (learner->Waiting() == 0) learner->Await(far);
    EXPECT_THAT(Take(learner.get(), &step), Holds(true));
    poster.join();
    std::thread interrupter([&] { learner->Interrupt(); });
    learner->Await(far);
    interrupter.join();
  }
  // One that came before the wait.
  learner->Interrupt();
  learner->Await(far);
  EXPECT_EQ(learner->Waiting(), 0u);
}

TEST_F(RingTest, PollingEndsWithWhatComesAndAtTheDeadline) {
  const auto server = Make(Ring::End::kServer);
  const auto learner = Make(Ring::End::kLearner);
  learner->SetSpin(absl::Hours(1));  // no more than is allowed
  v1::StepBatch step;
  for (uint64_t seq = 0; seq < 100; ++seq) {
    std::thread poster([&] { Put(MakeStep(0, seq), server.get()); });
    while (learner->Waiting() == 0) {
      learner->Await(Ring::Clock::now() + std::chrono::hours(1));
    }
    EXPECT_THAT(Take(learner.get(), &step), Holds(true));
    poster.join();
  }
  learner->Await(Ring::Clock::now());
  EXPECT_EQ(learner->Waiting(), 0u);
}

// A server that is killed wherever it is: what was posted is whole, and what was
// not is never seen.
TEST_F(RingTest, KilledWriterLeavesWholeStepsOnly) {
  int posted = 0, cut_short = 0;
  for (int kill_after = 0; kill_after < 300; ++kill_after) {
    std::memset(memory_, 0, ring_.bytes);
    const auto learner = Make(Ring::End::kLearner);
    learner->SetSpin(absl::Milliseconds(1));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Ring server(memory(), &ring_, Ring::End::kServer);
      v1::ActionBatch actions;
      for (uint64_t seq = 0;; ++seq) {
        Put(MakeStep(0, seq), &server);
        while (server.Waiting() == 0) {
          server.Await(Ring::Clock::now() + std::chrono::seconds(10));
        }
        TakeActions(layout_, ring_, server.NextIn(), &actions);
        server.Take();
        if (actions.seq() != seq) _exit(1);
      }
    }
    v1::StepBatch step;
    uint64_t seq = 0;
    const auto take = [&] {
      const auto taken = Take(learner.get(), &step);
      ASSERT_THAT(taken, Holds(true));
      ASSERT_TRUE(MessageDifferencer::Equals(step, MakeStep(0, seq)))
          << step.DebugString();
      ++seq;
    };
    v1::ActionBatch actions;
    actions.add_action(std::string(kRows * 8, '\0'));
    const auto answer = [&] {
      actions.set_seq(seq - 1);
      ASSERT_OK(PutActions(layout_, ring_, actions, learner->NextOut()));
      learner->Post();
    };
    // Some steps in, it begins to write another, and is killed a little later; the
    // last ones once they have posted it, however long a core takes to be theirs.
    const bool after_it = kill_after >= 290;
    const uint64_t first = 1 + kill_after % 3;
    while (seq < first) {
      while (learner->Waiting() == 0) {
        learner->Await(Ring::Clock::now() + std::chrono::seconds(10));
      }
      take();
      answer();
    }
    const auto until =
        Ring::Clock::now() + std::chrono::nanoseconds(100 * kill_after);
    while (Ring::Clock::now() < until ||
           (after_it && learner->Waiting() == 0)) {
    }
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_LE(learner->Waiting(), 1u);
    if (learner->Waiting() == 1) {
      take();
      ++posted;
    } else {
      ++cut_short;
    }
    EXPECT_EQ(learner->Waiting(), 0u);
  }
  EXPECT_EQ(posted + cut_short, 300);
  EXPECT_GE(posted, 10);
}

}  // namespace
}  // namespace flotilla
