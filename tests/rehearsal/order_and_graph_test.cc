// What late streams and graphs break, and that the device names it.

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "learner/torch.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/strict.h"

namespace flotilla::rehearsal {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

class OrderTest : public ::testing::Test {
 protected:
  OrderTest() { ResetCounts(); }

  c10::Stream Main() { return guard_.getStream(Device()); }
  // From the main stream to `side`, unless it is planted to be missing.
  void Pass(c10::Stream from, c10::Stream to) {
    c10::Event event(c10::kPrivateUse1);
    event.record(from);
    event.block(to);
  }
  int64_t Missing() { return ReadCounts().missing_events; }

  const Strict strict_;
  const c10::impl::VirtualGuardImpl guard_ = [] {
    Register();
    return c10::impl::VirtualGuardImpl(c10::kPrivateUse1);
  }();
  const c10::Stream side_ = guard_.getNewStream(Device());
};

TEST_F(OrderTest, AnEventOrdersTwoStreams) {
  const Tensor x = torch::ones({4}, Device());
  Pass(Main(), side_);
  Tensor y;
  {
    const c10::StreamGuard on_side(side_);
    y = x + 1;
  }
  Pass(side_, Main());
  x.add_(y);
  EXPECT_EQ(Missing(), 0);
}

TEST_F(OrderTest, AMissingEventBeforeAReadIsCounted) {
  const Tensor x = torch::ones({4}, Device());
  const c10::StreamGuard on_side(side_);
  const Tensor y = x + 1;
  EXPECT_EQ(Missing(), 1);
}

TEST_F(OrderTest, AMissingEventBeforeAWriteIsCounted) {
  const Tensor x = torch::ones({4}, Device());
  Pass(Main(), side_);
  Tensor y;
  {
    const c10::StreamGuard on_side(side_);
    y = x + 1;
  }
  x.zero_();  // while the side stream may still read it
  EXPECT_EQ(Missing(), 1);
}

TEST_F(OrderTest, AnEventOfBeforeIsTooEarly) {
  const Tensor x = torch::ones({4}, Device());
  Pass(Main(), side_);
  x.mul_(2);
  const c10::StreamGuard on_side(side_);
  const Tensor y = x + 1;
  EXPECT_EQ(Missing(), 1);
}

TEST_F(OrderTest, AWaitOfTheHostOrdersStreamsToo) {
  const Tensor x = torch::ones({4}, Device());
  Main().synchronize();
  const c10::StreamGuard on_side(side_);
  const Tensor y = x + 1;
  EXPECT_EQ(Missing(), 0);
}

TEST_F(OrderTest, EventsPassOnWhatTheyWaitedFor) {
  const c10::Stream third = guard_.getNewStream(Device());
  const Tensor x = torch::ones({4}, Device());
  Pass(Main(), side_);
  Pass(side_, third);
  const c10::StreamGuard on_third(third);
  const Tensor y = x + 1;
  EXPECT_EQ(Missing(), 0);
}

// A step of a small network: forward, backward, update; and how far it got.
struct Trained {
  Trained() {
    const auto on = torch::device(Device());
    w = torch::full({3, 4}, 0.1f, on).requires_grad_(true);
    w.mutable_grad() = torch::zeros({3, 4}, on);
    x = torch::zeros({5, 4}, on);
    steps = torch::zeros({1}, on);
  }
  void Step() {
    w.grad().zero_();
    const Tensor loss = (torch::tanh(x.mm(w.t())) - 1).square().mean();
    loss.backward();
    const torch::NoGradGuard no_grad;
    steps.add_(1);
    w.sub_(w.grad() / steps);
  }
  void Feed(int i) {
    x.copy_(torch::full({5, 4}, 0.3f * static_cast<float>(i)).pin_memory(),
            /*non_blocking=*/true);
  }
  Tensor w, x, steps;
};

TEST(GraphTest, ReplaysToEqualParameters) {
  Register();
  const Strict strict;
  Trained eager, captured;
  Graph graph;
  eager.Feed(0);
  captured.Feed(0);
  eager.Step();
  {
    const Graph::Capture capture(&graph);
    captured.Step();
  }
  EXPECT_GT(graph.operators(), 8);
  for (int i = 1; i < 4; ++i) {
    eager.Feed(i);
    eager.Step();
    captured.Feed(i);
    ResetCounts();
    graph.Replay();
    EXPECT_EQ(ReadCounts().launches, 1);
    EXPECT_TRUE(torch::equal(captured.w.detach().cpu(), eager.w.detach().cpu()))
        << "after replay " << i;
  }
}

std::string ThrownBy(const std::function<void()>& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing";
}

TEST(GraphTest, RefusesWhatTheHostWaitsFor) {
  Register();
  const Tensor x = torch::ones({2}, Device());
  const Tensor pageable = torch::ones({2});
  const auto in_capture = [&](const std::function<void()>& f) {
    Graph graph;
    return ThrownBy([&] {
      const Graph::Capture capture(&graph);
      f();
    });
  };
  EXPECT_EQ(in_capture([&] { x.mul_(2); }), "nothing");
  EXPECT_THAT(in_capture([&] { x.sum().item<float>(); }), HasSubstr("item()"));
  EXPECT_THAT(in_capture([&] { x.copy_(pageable); }),
              HasSubstr("a copy of pageable memory to the device"));
  EXPECT_THAT(in_capture([&] { x.cpu(); }), HasSubstr("to the host"));
  EXPECT_THAT(in_capture([&] { x.nonzero(); }), HasSubstr("nonzero"));
}

TEST(GraphTest, AMovedBufferIsNamed) {
  Register();
  Trained trained;
  Graph graph;
  {
    const Graph::Capture capture(&graph);
    trained.Step();
  }
  graph.Replay();
  trained.x = torch::ones({5, 4}, Device());  // instead of writing where it is
  EXPECT_THAT(ThrownBy([&] { graph.Replay(); }),
              ::testing::AllOf(HasSubstr("moved memory in a graph"),
                               HasSubstr("aten::mm")));
}

TEST(GraphTest, ItsMemoryIsNobodyElses) {
  Register();
  Tensor x = torch::ones({64}, Device());
  Tensor y;
  Graph graph;
  {
    const Graph::Capture capture(&graph);
    y = (x + 1) * 2;  // what is in between is given back, but not to others
  }
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(torch::full({64}, 7, Device()));
  x.fill_(3);
  graph.Replay();
  EXPECT_EQ(y.cpu()[0].item<float>(), 8);
  for (const Tensor& other : others) {
    EXPECT_TRUE((other.cpu() == 7).all().item<bool>());
  }
}

}  // namespace
}  // namespace flotilla::rehearsal
