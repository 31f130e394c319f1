#ifndef FLOTILLA_LEARNER_ALGO_ALGORITHM_PLUGIN_H_
#define FLOTILLA_LEARNER_ALGO_ALGORITHM_PLUGIN_H_

#include <memory>

#include "absl/status/status.h"
#include "flotilla/v1/config.pb.h"
#include "learner/algo/algorithm_table.h"
#include "learner/plugin/build_stamp.h"
#include "learner/torch_nn.h"  // for modules of yours
#include "services/algorithms/custom.h"

// An algorithm of your own from a shared library: custom.library. In one file of
// it,
//
//   FLOTILLA_ALGORITHM(MyTraits, MakeMyAlgorithm)
//
// names a class derived from CustomAlgorithm and an AlgorithmFactory. `flotilla
// new algorithm DIR` writes a project with one.

namespace flotilla {

// What a library says of its algorithm.
struct AlgorithmPlugin {
  std::unique_ptr<const CustomAlgorithm> traits;
  AlgorithmFactory make;
};

#define FLOTILLA_ALGORITHM(Traits, make_algorithm)                           \
  FLOTILLA_STAMPED();                                                        \
  extern "C" __attribute__((visibility("default"))) void flotilla_algorithm( \
      ::flotilla::AlgorithmPlugin* plugin) {                                 \
    plugin->traits = std::make_unique<Traits>();                             \
    plugin->make = make_algorithm;                                           \
  }                                                                          \
  static_assert(true)

// Puts the algorithm of the library that `config` names into both tables, in the
// row "custom"; does nothing if another algorithm is chosen. Before anything asks
// the tables. The library stays loaded.
// Errors: kInvalidArgument, kFailedPrecondition naming the library.
absl::Status LoadCustomAlgorithm(const v1::RunConfig& config);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_ALGORITHM_PLUGIN_H_
