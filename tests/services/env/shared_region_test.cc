#include "services/env/shared_region.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using testing::HasSubstr;

OwnedFd Copy(int fd) { return OwnedFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

OwnedFd Memfd(size_t bytes, int seals) {
  OwnedFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(SharedRegionTest, BothSidesSeeTheSameBytes) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion ours, SharedRegion::Create(4096));
  ASSERT_OK_AND_ASSIGN(const SharedRegion theirs,
                       SharedRegion::Map(Copy(ours.fd()), 4096));
  EXPECT_EQ(ours.bytes()[4095], std::byte{0});
  theirs.bytes()[4095] = std::byte{7};
  EXPECT_EQ(ours.bytes()[4095], std::byte{7});
}

TEST(SharedRegionTest, SizeCannotChangeOnceMade) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(4096));
  EXPECT_NE(ftruncate(region.fd(), 0), 0);
  EXPECT_NE(ftruncate(region.fd(), 8192), 0);
}

TEST(SharedRegionTest, UnsealedRegionIsRefused) {
  for (int seals : {0, F_SEAL_GROW, F_SEAL_SHRINK}) {
    EXPECT_THAT(SharedRegion::Map(Memfd(128, seals), 128),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("F_SEAL_SHRINK | F_SEAL_GROW")));
  }
}

TEST(SharedRegionTest, RegionOfAnotherSizeIsRefused) {
  for (size_t bytes : {127, 129, 0}) {
    EXPECT_THAT(
        SharedRegion::Map(Memfd(bytes, F_SEAL_GROW | F_SEAL_SHRINK), 128),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("want 128")));
  }
}

TEST(SharedRegionTest, ReadOnlyRegionIsRefused) {
  EXPECT_THAT(
      SharedRegion::Map(Memfd(128, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE),
                        128),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot map")));
}

TEST(SharedRegionTest, FileIsNoRegion) {
  const TempDir dir;
  WriteFile(dir / "file", std::string(128, 'x'));
  EXPECT_THAT(
      SharedRegion::Map(OwnedFd(open((dir / "file").c_str(), O_RDWR)), 128),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a memfd")));
}

// `name` is abstract.
OwnedFd ConnectTo(const std::string& name) {
  OwnedFd connection(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data() + 1, name.size() - 1);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address),
                    offsetof(sockaddr_un, sun_path) + name.size()),
            0);
  return connection;
}

TEST(RegionReceiverTest, TakesTheDescriptorThatComesWithTheToken) {
  ASSERT_OK_AND_ASSIGN(const auto receiver, RegionReceiver::Listen());
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(64));
  // Strangers first: a wrong token, a longer one, and one who says nothing.
  ASSERT_OK(SendRegion(receiver->socket(), "guess", region.fd()));
  ASSERT_OK(
      SendRegion(receiver->socket(), receiver->token() + "x", region.fd()));
  const OwnedFd silent = ConnectTo(receiver->socket());
  ASSERT_OK(SendRegion(receiver->socket(), receiver->token(), region.fd()));
  ASSERT_OK_AND_ASSIGN(OwnedFd fd, receiver->Receive(absl::Seconds(30)));
  EXPECT_OK(SharedRegion::Map(std::move(fd), 64));
}

size_t OpenDescriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                    std::filesystem::directory_iterator()));
}

TEST(RegionReceiverTest, KeepsOneDescriptorOfWhatever) {
  ASSERT_OK_AND_ASSIGN(const auto receiver, RegionReceiver::Listen());
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(64));
  const size_t before = OpenDescriptors();
  {
    const OwnedFd sender = ConnectTo(receiver->socket());
    const int fds[] = {region.fd(), region.fd()};
    std::string token = receiver->token();
    iovec data = {token.data(), token.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fds));
    std::memcpy(CMSG_DATA(header), fds, sizeof(fds));
    ASSERT_EQ(sendmsg(sender.get(), &message, 0),
              static_cast<ssize_t>(token.size()));
    ASSERT_OK(receiver->Receive(absl::Seconds(30)));
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(RegionReceiverTest, GivesUpAtTheDeadline) {
  ASSERT_OK_AND_ASSIGN(const auto receiver, RegionReceiver::Listen());
  EXPECT_THAT(receiver->Receive(absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr(receiver->socket())));
}

TEST(RegionReceiverTest, TokensAreNotRepeated) {
  ASSERT_OK_AND_ASSIGN(const auto one, RegionReceiver::Listen());
  ASSERT_OK_AND_ASSIGN(const auto two, RegionReceiver::Listen());
  EXPECT_EQ(one->token().size(), 16u);
  EXPECT_NE(one->token(), two->token());
  EXPECT_NE(one->socket(), two->socket());
}

TEST(SendRegionTest, NobodyThereIsUnavailable) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(64));
  EXPECT_THAT(SendRegion("@flotilla-test-nobody", "token", region.fd()),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("@flotilla-test-nobody")));
  EXPECT_THAT(
      SendRegion("@flotilla" + std::string(200, 'x'), "token", region.fd()),
      StatusIs(absl::StatusCode::kUnavailable));
}

// A server that a learner plays on may name any socket.
TEST(SendRegionTest, SpeaksToNobodyElse) {
  ASSERT_OK_AND_ASSIGN(const SharedRegion region, SharedRegion::Create(64));
  for (const char* other : {"/run/docker.sock", "@/tmp/.X11-unix/X0", "@"}) {
    EXPECT_THAT(SendRegion(other, "token", region.fd()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("begins with @flotilla")));
  }
  EXPECT_THAT(
      SendRegion("@flotilla-test-nobody", std::string(65, 'x'), region.fd()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("65 bytes")));
}

}  // namespace
}  // namespace flotilla
