# The tests' vocabulary: flotilla_test, flotilla_tests and flotilla_pytest.

# flotilla_test(name SRCS x_test.cc... [DEPS target...] [LABELS label...]
#               [TIMEOUT seconds] [ENVIRONMENT NAME=value...])
#
# One GoogleTest program with gtest_main and gmock, registered with ctest under
# its own name. It finds our programs through FLOTILLA_BIN and the checkout
# through FLOTILLA_SOURCE. Defaults: LABELS unit, TIMEOUT 120. A test that links
# no Torch gets the label torch_free too.
function(flotilla_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SRCS;DEPS;LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "flotilla_test(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name}
    PRIVATE flotilla_flags flotilla_warnings ${arg_DEPS} GTest::gmock GTest::gtest_main)
  flotilla_test_flags(${name} ${arg_DEPS})
  flotilla_register_test(${name} "$<TARGET_FILE:${name}>" "${arg_DEPS}" "${arg_LABELS}" "${arg_TIMEOUT}"
    "${arg_ENVIRONMENT}")
endfunction()

# flotilla_tests(x_test... [PREFIX p] DEPS target... [SRCS helper.cc...] [LABELS label...]
#                [OPTIONS option...] [TIMEOUT seconds] [ENVIRONMENT NAME=value...] [BESIDE_PROGRAMS])
#
# As flotilla_test for each x_test.cc, a test and a program <p>x_test. Several files are
# compiled together, since reading what they include takes longest, into one program that
# has a name for each: tests/testing/main.cc. BESIDE_PROGRAMS: in <build>/bin, for what
# starts its sibling.
set(flotilla_at_once 5)
function(flotilla_tests)
  cmake_parse_arguments(PARSE_ARGV 0 arg "BESIDE_PROGRAMS" "TIMEOUT;PREFIX" "SRCS;DEPS;OPTIONS;LABELS;ENVIRONMENT")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}")
  if(arg_BESIDE_PROGRAMS)
    set(folder "${CMAKE_BINARY_DIR}/bin")
  endif()
  set(left ${arg_UNPARSED_ARGUMENTS})
  if(NOT FLOTILLA_UNITY)
    foreach(name IN LISTS left)
      flotilla_test(${arg_PREFIX}${name} SRCS ${name}.cc ${arg_SRCS} DEPS ${arg_DEPS} LABELS ${arg_LABELS}
        TIMEOUT ${arg_TIMEOUT} ENVIRONMENT ${arg_ENVIRONMENT})
      target_compile_options(${arg_PREFIX}${name} PRIVATE ${arg_OPTIONS})
      set_target_properties(${arg_PREFIX}${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${folder}")
    endforeach()
    return()
  endif()
  list(LENGTH left count)
  math(EXPR last "${count} - 1")
  foreach(begin RANGE 0 ${last} ${flotilla_at_once})
    list(SUBLIST left ${begin} ${flotilla_at_once} names)
    list(TRANSFORM names PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE files)
    list(TRANSFORM files APPEND ".cc")
    set(links ${names})
    list(TRANSFORM links PREPEND "${arg_PREFIX}")
    list(GET links 0 first)
    set(group "${first}_and_others")
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${group}.cc")
    add_custom_command(OUTPUT "${source}"
      COMMAND ${CMAKE_COMMAND} "-DOUT=${source}" -P "${CMAKE_SOURCE_DIR}/cmake/together.cmake" -- ${files}
      DEPENDS ${files} "${CMAKE_SOURCE_DIR}/cmake/together.cmake"
      COMMENT "Gathering the tests of ${group}"
      VERBATIM)
    add_executable(${group} "${source}" ${arg_SRCS})
    target_include_directories(${group} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_link_libraries(${group} PRIVATE flotilla_flags flotilla_warnings ${arg_DEPS} flotilla_test_main)
    set_target_properties(${group} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${folder}")
    flotilla_test_flags(${group} ${arg_DEPS})
    target_compile_options(${group} PRIVATE ${arg_OPTIONS})
    foreach(name IN LISTS links)
      add_custom_command(TARGET ${group} POST_BUILD
        COMMAND ${CMAKE_COMMAND} -E create_hardlink "$<TARGET_FILE:${group}>" "${folder}/${name}"
        VERBATIM)
      add_custom_target(${name} DEPENDS ${group})
      flotilla_register_test(${name} "${folder}/${name}" "${arg_DEPS}" "${arg_LABELS}" "${arg_TIMEOUT}"
        "${arg_ENVIRONMENT}")
    endforeach()
  endforeach()
endfunction()

function(flotilla_test_flags target)
  target_compile_options(${target} PRIVATE ${flotilla_untuned})
  flotilla_links(torch torch::torch ${ARGN})
  if(torch)
    flotilla_torch_pch(${target} TEST)
  else()
    flotilla_plain_pch(${target} TEST ${ARGN})
  endif()
endfunction()

function(flotilla_register_test name program deps labels timeout environment)
  add_test(NAME ${name} COMMAND "${program}")
  if(NOT labels)
    set(labels unit)
  endif()
  flotilla_links(torch torch::torch ${deps})
  if(NOT torch)
    flotilla_part(torch_free ${name})
    list(APPEND labels torch_free)
  endif()
  foreach(label IN LISTS labels)
    flotilla_part(tests_${label} ${name})
  endforeach()
  # Torch's threads spin while they wait: tests side by side would starve each other.
  flotilla_test_properties(${name} "${labels}" "${timeout}" "OMP_NUM_THREADS=1;${environment}")
endfunction()

# flotilla_pytest(name file_test.py [LABELS label...] [TIMEOUT seconds]
#                 [ENVIRONMENT NAME=value...])
#
# Registers one pytest file with ctest, run by the Python that
# `cmake/setup.sh test` prepared. Without it there is no such test. Those marked
# @pytest.mark.long are a test of their own, <name>_long with the label long, and
# may take an hour.
function(flotilla_pytest name file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "TIMEOUT" "LABELS;ENVIRONMENT")
  set(python "${FLOTILLA_DEPS}/testvenv/bin/python")
  if(NOT EXISTS "${python}")
    message(STATUS "no ${python}: ${name} is left out (cmake/setup.sh test)")
    return()
  endif()
  set(path "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  set(pytest "${python}" -m pytest -q -p no:cacheprovider -c "${CMAKE_SOURCE_DIR}/tests/pytest.ini")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  file(STRINGS "${path}" long REGEX "^@pytest\\.mark\\.long")
  add_test(NAME ${name} COMMAND ${pytest} -m "not long" "${path}")
  flotilla_test_properties(${name} "${arg_LABELS}" "${arg_TIMEOUT}" "${arg_ENVIRONMENT}")
  if(long)
    add_test(NAME ${name}_long COMMAND ${pytest} -m long "${path}")
    flotilla_test_properties(${name}_long "${arg_LABELS};long" 3600 "${arg_ENVIRONMENT}")
  endif()
endfunction()

function(flotilla_test_properties name labels timeout environment)
  if(NOT labels)
    set(labels unit)
  endif()
  if(NOT timeout)
    set(timeout 120)
  endif()
  if(FLOTILLA_SANITIZE)
    math(EXPR timeout "4 * ${timeout}")
    list(APPEND environment
      "LSAN_OPTIONS=print_suppressions=0:suppressions=${CMAKE_SOURCE_DIR}/cmake/lsan.supp")
  endif()
  # What Python compiled is kept, wherever the machine's environment says otherwise, and not
  # in the checkout: of MLflow's import compiling takes two thirds.
  list(APPEND environment PYTHONDONTWRITEBYTECODE= "PYTHONPYCACHEPREFIX=${CMAKE_BINARY_DIR}/pycache")
  # What may take longest begins first, or a core would idle at the end: ctest then asks
  # nothing of how long they took before.
  set_tests_properties(${name} PROPERTIES
    LABELS "${labels}"
    TIMEOUT ${timeout}
    COST ${timeout}
    ENVIRONMENT "FLOTILLA_BIN=${CMAKE_BINARY_DIR}/bin;FLOTILLA_SOURCE=${CMAKE_SOURCE_DIR};FLOTILLA_DEPS=${FLOTILLA_DEPS};FLOTILLA_PYTHON=${FLOTILLA_DEPS}/testvenv/bin/python;${environment}")
endfunction()
