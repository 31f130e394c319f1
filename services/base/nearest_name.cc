#include "services/base/nearest_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace flotilla {
namespace {

// Edits (insert, delete, replace, swap neighbours) that make `a` into `b`.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1,
                                     std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                          d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string Folded(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return absl::AsciiStrToLower(name);
}

}  // namespace

std::string NearestName(const std::string& name,
                        const std::vector<std::string>& known) {
  if (name.empty()) return "";
  const std::string wanted = Folded(name);
  std::string nearest;
  size_t fewest = std::max<size_t>(1, wanted.size() / 3) + 1;
  std::vector<std::string> containing;
  for (const std::string& candidate : known) {
    const std::string folded = Folded(candidate);
    // At least the difference in length; a stranger's name may be very long.
    const size_t at_least = std::max(wanted.size(), folded.size()) -
                            std::min(wanted.size(), folded.size());
    if (at_least < fewest) {
      const size_t distance = EditDistance(wanted, folded);
      if (distance < fewest) {
        fewest = distance;
        nearest = candidate;
      }
    }
    if (wanted.size() >= 3 && folded.find(wanted) != folded.npos) {
      containing.push_back(candidate);
    }
  }
  if (nearest.empty() && containing.size() == 1) return containing[0];
  return nearest;
}

std::string DidYouMean(const std::string& name,
                       const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? ""
                         : absl::StrCat("; did you mean \"", nearest, "\"?");
}

}  // namespace flotilla
