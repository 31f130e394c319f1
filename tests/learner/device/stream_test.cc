#include "learner/device/stream.h"

#include <latch>
#include <thread>

#include "gtest/gtest.h"
#include "learner/device/transfer.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/strict.h"

namespace flotilla {
namespace {

using rehearsal::Device;

class StreamTest : public testing::Test {
 protected:
  StreamTest() {
    rehearsal::Register();
    rehearsal::ResetCounts();
  }
  static int64_t MissingEvents() {
    return rehearsal::ReadCounts().missing_events;
  }

  const rehearsal::Strict strict_;
};

// One thread writes what another reads, and writes it again once that was read.
void WriteReadWrite(bool await_written, bool await_read) {
  const torch::Tensor x = torch::zeros({4}, Device());
  StreamMark written, read;
  std::latch is_written(1), is_read(1), is_over(1);
  std::thread actor([&] {
    const OwnStream own(Device());
    is_written.wait();
    if (await_written) written.Await();
    const torch::Tensor twice = x * 2;
    read = StreamMark::Now(Device());
    is_read.count_down();
    is_over.wait();  // or the host would know, when its stream ends
  });
  x.fill_(1);
  written = StreamMark::Now(Device());
  is_written.count_down();
  is_read.wait();
  if (await_read) read.Await();
  x.fill_(2);
  is_over.count_down();
  actor.join();
}

TEST_F(StreamTest, MarksOrderWhatTwoThreadsAsk) {
  WriteReadWrite(true, true);
  EXPECT_EQ(MissingEvents(), 0);
}

TEST_F(StreamTest, WithoutTheOneBeforeItWasReadThereIsNoOrder) {
  WriteReadWrite(false, true);
  EXPECT_GE(MissingEvents(), 1);
}

TEST_F(StreamTest, WithoutTheOneBeforeItIsWrittenAgainThereIsNone) {
  WriteReadWrite(true, false);
  EXPECT_GE(MissingEvents(), 1);
}

// What was asked of a stream of one's own is over when that goes.
TEST_F(StreamTest, ItsEndWaits) {
  torch::Tensor x;
  std::thread([&] {
    const OwnStream own(Device());
    x = torch::ones({4}, Device()) * 3;
  }).join();
  EXPECT_EQ(ToHost(x * 2)[3].item<float>(), 6);
  EXPECT_EQ(MissingEvents(), 0);
}

TEST(StreamOfACpuTest, IsNone) {
  const OwnStream own(torch::kCPU);
  StreamMark::Now(torch::kCPU).Await();
  StreamMark().Await();
}

}  // namespace
}  // namespace flotilla
