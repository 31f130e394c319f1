#include "learner/plugin/shared_library.h"

#include "learner/plugin/build_stamp.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace flotilla {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOurs[] =
    "flotilla=0.1.0 headers=abc torch=2.11.0 abi=cxx11-1017";

TEST(CompareStampsTest, TheSameIsTakenAndTheStampHasEveryPart) {
  EXPECT_OK(CompareStamps(kOurs, kOurs));
  for (const char* part : {"flotilla=", "headers=", "torch=", "abi="}) {
    EXPECT_THAT(FLOTILLA_BUILD_STAMP, HasSubstr(part));
  }
}

TEST(CompareStampsTest, WhatDiffersIsNamedOnBothSides) {
  EXPECT_THAT(
      CompareStamps("flotilla=0.1.0 headers=abc torch=2.10.0 abi=cxx11-1017",
                    kOurs),
      StatusIs(
          absl::StatusCode::kFailedPrecondition,
          AllOf(HasSubstr("built for LibTorch 2.10.0, and"),
                HasSubstr("is of LibTorch 2.11.0;"), Not(HasSubstr("0.1.0")))));
  EXPECT_THAT(
      CompareStamps("flotilla=0.2.0 headers=def torch=2.11.0 abi=cxx11-1018",
                    kOurs),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("Flotilla 0.2.0, Flotilla's headers def, C++ "
                               "ABI cxx11-1018"),
                     HasSubstr("Flotilla 0.1.0, Flotilla's headers abc, C++ "
                               "ABI cxx11-1017"))));
}

// A stamp that a file happens to hold may be anything.
TEST(CompareStampsTest, RubbishIsRefused) {
  for (const char* theirs : {"", "=", "torch", "a=b", "flotilla=0.1.0"}) {
    EXPECT_FALSE(CompareStamps(theirs, kOurs).ok()) << theirs;
  }
}

TEST(LoadFunctionTest, AFileThatIsNoLibraryIsRefusedByName) {
  const TempDir temp;
  const auto load = [&](const std::string& path) {
    return LoadFunction("model.plugin \"x.so\"", path, "flotilla_network")
        .status();
  };
  EXPECT_THAT(load(temp / "missing.so"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.plugin \"x.so\" cannot be read")));
  WriteFile(temp / "text.so", "text");
  EXPECT_THAT(load(temp / "text.so"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is no shared library")));
  // Stamped by nobody, and cut off behind the mark.
  WriteFile(temp / "elf.so", "\177ELF");
  EXPECT_THAT(load(temp / "elf.so"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no build stamp")));
  WriteFile(temp / "mark.so", "\177ELF" FLOTILLA_STAMP_MARK);
  EXPECT_THAT(load(temp / "mark.so"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("")));
  WriteFile(
      temp / "cut.so",
      "\177ELF" FLOTILLA_STAMP_MARK FLOTILLA_BUILD_STAMP + std::string(1, 0));
  EXPECT_THAT(
      load(temp / "cut.so"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is cut off")));
}

}  // namespace
}  // namespace flotilla
