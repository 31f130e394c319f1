// The main() of tests that were compiled together (flotilla_tests of cmake/tests.cmake):
// runs those of the file that the program is called after, by the longest name, so
// that coordinator_roster_test runs those of roster_test.cc. A filter of the command
// line, or GTEST_FILTER, is taken in place of that.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace {

std::string_view Stem(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 is 0
  return path.substr(0, path.find('.'));
}

template <typename Visit>
void EachTest(const Visit& visit) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      visit(*suite.GetTestInfo(j));
    }
  }
}

// Those of the file that `program` is called after; none, if there is no such file.
std::string TestsOf(std::string_view program) {
  std::string_view file;
  EachTest([&](const testing::TestInfo& test) {
    const std::string_view stem = Stem(test.file());
    if (program.ends_with(stem) && stem.size() > file.size()) file = stem;
  });
  std::string filter;
  EachTest([&](const testing::TestInfo& test) {
    if (file.empty() || Stem(test.file()) != file) return;
    filter += std::string(test.test_suite_name()) + "." + test.name() + ":";
  });
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  const bool asked =
      std::getenv("GTEST_FILTER") != nullptr ||
      std::any_of(argv + 1, argv + argc, [](std::string_view word) {
        return word.starts_with("--gtest_filter");
      });
  testing::InitGoogleTest(&argc, argv);
  const std::string_view program = Stem(argv[0]);
  if (!asked && !program.ends_with("_and_others")) {
    const std::string filter = TestsOf(program);
    if (filter.empty()) {
      std::cerr << program << ": no file of tests has such a name\n";
      return 1;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
