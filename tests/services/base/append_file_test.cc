#include "services/base/append_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

// Files of this process can grow to `bytes`, as on a full disk, until it ends.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

TEST(AppendFileTest, WhatTheDiskHasNoRoomForIsWrittenWhenItHas) {
  TempDir dir;
  auto file = AppendFile::Open(dir / "file");
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->Append("one\n");
  {
    SizeLimit limit(6);
    (*file)->Append("two\n");
    (*file)->Append("three\n");
    EXPECT_EQ(ReadFile(dir / "file"), "one\ntw");
  }
  (*file)->Append("four\n");
  EXPECT_EQ(ReadFile(dir / "file"), "one\ntwo\nthree\nfour\n");
}

TEST(AppendFileTest, TheLastRecordsAreWrittenAtTheEnd) {
  TempDir dir;
  auto file = AppendFile::Open(dir / "file");
  ASSERT_TRUE(file.ok()) << file.status();
  {
    SizeLimit limit(0);
    (*file)->Append("one\n");
  }
  EXPECT_EQ(ReadFile(dir / "file"), "");
  file->reset();
  EXPECT_EQ(ReadFile(dir / "file"), "one\n");
}

TEST(AppendFileTest, WhatWaitsIsBoundedAndWhole) {
  TempDir dir;
  auto file = AppendFile::Open(dir / "file");
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string record(10 << 20, 'x');
  {
    SizeLimit limit(0);
    (*file)->Append(record);
    (*file)->Append(record);  // one too many
    (*file)->Append("y");
  }
  (*file)->Append("z");
  EXPECT_EQ(ReadFile(dir / "file"), record + "yz");
}

TEST(AppendFileTest, NamesThePathItCannotOpen) {
  const auto file = AppendFile::Open("/nonexistent/file");
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().ToString().find("/nonexistent/file"),
            std::string::npos);
}

}  // namespace
}  // namespace flotilla
