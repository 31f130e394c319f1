# Included by the emulator's own build: compiles its games twelve at a time, which halves
# what it takes. The rest (*.cxx) has macros that get in each other's way.
function(put_games_together)
  get_target_property(sources ale SOURCES)
  get_target_property(folder ale SOURCE_DIR)
  list(FILTER sources INCLUDE REGEX "\\.cxx$")
  list(TRANSFORM sources REPLACE "^([^/])" "${folder}/\\1")
  set_source_files_properties(${sources} TARGET_DIRECTORY ale
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
cmake_language(DEFER CALL put_games_together)
