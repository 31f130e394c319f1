#include "services/algorithms/built_in.h"

namespace flotilla {

std::vector<std::unique_ptr<const AlgorithmTraits>> BuiltInAlgorithms() {
  std::vector<std::unique_ptr<const AlgorithmTraits>> rows;
  rows.push_back(PpoTraits());
  rows.push_back(DqnTraits());
  rows.push_back(ImpalaTraits());
  rows.push_back(SacTraits());
  rows.push_back(CustomTraits());
  return rows;
}

}  // namespace flotilla
