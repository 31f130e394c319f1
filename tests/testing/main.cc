// The main() of tests that were compiled together (flotilla_tests of cmake/tests.cmake):
// runs those of the file that the program is called after, by the longest name, so
// that coordinator_roster_test runs those of roster_test.cc. A filter of the command
// line comes first.

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

// Those of the file that `program` is called after; all, if there is none.
std::string TestsOf(std::string_view program) {
  std::string_view file;
  EachTest([&](const testing::TestInfo& test) {
    const std::string_view stem = Stem(test.file());
    if (program.ends_with(stem) && stem.size() > file.size()) file = stem;
  });
  if (file.empty()) return "*";
  std::string filter;
  EachTest([&](const testing::TestInfo& test) {
    if (Stem(test.file()) != file) return;
    filter += std::string(test.test_suite_name()) + "." + test.name() + ":";
  });
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string unasked = GTEST_FLAG_GET(filter);
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(filter) == unasked) {
    GTEST_FLAG_SET(filter, TestsOf(Stem(argv[0])));
  }
  return RUN_ALL_TESTS();
}
