#ifndef FLOTILLA_SERVICES_ALGORITHMS_BUILT_IN_H_
#define FLOTILLA_SERVICES_ALGORITHMS_BUILT_IN_H_

#include <memory>
#include <vector>

#include "services/algorithms/algorithm_traits.h"

namespace flotilla {

// The algorithms of this tree, each in the file of its name.
std::unique_ptr<const AlgorithmTraits> PpoTraits();
std::unique_ptr<const AlgorithmTraits> DqnTraits();
std::unique_ptr<const AlgorithmTraits> ImpalaTraits();
std::unique_ptr<const AlgorithmTraits> SacTraits();
// The row that a library's takes the place of.
std::unique_ptr<const AlgorithmTraits> CustomTraits();

// All of them, in the order in which messages name them.
std::vector<std::unique_ptr<const AlgorithmTraits>> BuiltInAlgorithms();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ALGORITHMS_BUILT_IN_H_
