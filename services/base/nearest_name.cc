#include "services/base/nearest_name.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

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

std::vector<std::string> Words(const std::string& name) {
  return absl::StrSplit(name, absl::ByAnyChar("_."), absl::SkipEmpty());
}

// How many words of `candidate` are left over when those of `wanted` stand for
// the others, in order: each for one, or by its letters for the initials of two
// or more (lr: learning rate). nullopt if one stands for nothing.
std::optional<size_t> WordsLeftOver(const std::string& wanted,
                                    const std::string& candidate) {
  const std::vector<std::string> words = Words(candidate);
  const std::vector<std::string> wanted_words = Words(wanted);
  if (wanted_words.empty()) return std::nullopt;
  size_t at = 0, left_over = 0;
  for (const std::string& word : wanted_words) {
    for (;; ++at, ++left_over) {
      if (at == words.size()) return std::nullopt;
      if (words[at] == word) {
        ++at;
        break;
      }
      std::string initials;
      for (size_t i = at; i < words.size() && initials.size() < word.size();
           ++i) {
        initials.push_back(words[i][0]);
      }
      if (initials.size() >= 2 && initials == word) {
        at += initials.size();
        break;
      }
    }
  }
  return left_over + words.size() - at;
}

std::string Folded(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return absl::AsciiStrToLower(name);
}

// The one that leaves the fewest words over; "" if there is none.
std::string NearestByWords(const std::string& wanted,
                           const std::vector<std::string>& known) {
  std::string nearest;
  std::optional<size_t> fewest;
  for (const std::string& candidate : known) {
    const std::optional<size_t> left = WordsLeftOver(wanted, Folded(candidate));
    if (left && (!fewest || *left < *fewest)) {
      fewest = left;
      nearest = candidate;
    }
  }
  return nearest;
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
  if (!nearest.empty() && fewest <= 1) return nearest;
  // Whole words say more than a few letters in common.
  const std::string by_words = NearestByWords(wanted, known);
  if (!by_words.empty()) return by_words;
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
