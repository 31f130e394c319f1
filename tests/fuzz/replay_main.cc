// Stands in for libFuzzer where there is no clang:
//
//   TARGET CORPUS_FOLDER MUTATIONS
//
// Runs a fuzz target on every file of the folder, then on as many inputs that
// are made from those by chance, the same ones each time.

#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kLongest = 4096;

void RunOne(const std::string& input) {
  // A copy without a terminator: reading past the end is reading past the heap.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& corpus) : corpus_(corpus) {}

  std::string Next() {
    std::string input = Pick();
    for (size_t edits = 1 + Below(8); edits > 0; --edits) Edit(&input);
    input.resize(std::min(input.size(), kLongest));
    return input;
  }

 private:
  size_t Below(size_t count) { return random_() % count; }
  const std::string& Pick() { return corpus_[Below(corpus_.size())]; }

  void Edit(std::string* input) {
    const size_t at = Below(input->size() + 1);
    switch (Below(5)) {
      case 0:
        input->insert(at, 1, static_cast<char>(Below(256)));
        break;
      case 1:
        input->erase(at, 1 + Below(8));
        break;
      case 2: {
        const std::string& other = Pick();
        input->insert(at, other, Below(other.size() + 1), 1 + Below(64));
        break;
      }
      case 3:
        if (at < input->size()) (*input)[at] ^= 1 << Below(8);
        break;
      case 4:
        if (at < input->size()) (*input)[at] = static_cast<char>(Below(256));
        break;
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_{1};
};

}  // namespace

int main(int argc, char** argv) {
  CHECK_EQ(argc, 3) << "usage: " << argv[0] << " CORPUS_FOLDER MUTATIONS";
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file),
                        std::istreambuf_iterator<char>());
    RunOne(corpus.back());
  }
  CHECK(!corpus.empty()) << "no corpus in " << argv[1];
  Mutator mutator(corpus);
  const int mutations = std::atoi(argv[2]);
  for (int i = 0; i < mutations; ++i) RunOne(mutator.Next());
  std::printf("%zu seeds, %d mutations\n", corpus.size(), mutations);
  return 0;
}
