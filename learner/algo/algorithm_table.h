#ifndef FLOTILLA_LEARNER_ALGO_ALGORITHM_TABLE_H_
#define FLOTILLA_LEARNER_ALGO_ALGORITHM_TABLE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "learner/algo/algorithm.h"

// The table of algorithms, the half that makes them; MakeAlgorithm looks them up
// here. services/algorithms/algorithm_traits.h is the other half, which every
// program knows.

namespace flotilla {

// Makes the algorithm that `config` names, on `device`.
// Errors: kInvalidArgument, kUnimplemented when it does not fit `spaces`.
using AlgorithmFactory =
    std::function<absl::StatusOr<std::unique_ptr<Algorithm>>(
        const v1::RunConfig& config, const Spaces& spaces,
        torch::Device device)>;

// Adds the factory of a row that RegisterAlgorithm added, for as long as the
// program runs. Those of the built-in rows are always there; that of a row
// that stands in is replaced. Thread-safe.
// Errors: kAlreadyExists if it has one; kNotFound if there is no such row.
absl::Status RegisterAlgorithmFactory(const std::string& name,
                                      AlgorithmFactory factory);

}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_ALGO_ALGORITHM_TABLE_H_
