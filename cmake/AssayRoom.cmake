# assay_room(NAME SOURCES ... DEPS rooms... LIBS targets... TESTS stems... SLOW_TESTS stems...)
#   One static library assay_NAME (alias assay::NAME) from the listed sources. TESTS are file stems (foo_test -> foo_test.cpp):
#   together they make the program NAME_tests, label `fast`; SLOW_TESTS make NAME_slow_tests, label `slow`. THREADS: the room's code runs on
#   several threads, so its tests run under the thread sanitizer too. INNER: it reads nothing from outside and computes on values that others made, so
#   its tests are left out under the address sanitizer, for CI's time.
#   The build flags are part of the numerics contract: no contraction, no fast-math.

add_library(assay_flags INTERFACE)
target_compile_features(assay_flags INTERFACE cxx_std_20)
target_compile_options(assay_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-fast-math>)
if(ASSAY_WERROR)
  target_compile_options(assay_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wno-psabi -Werror>)
endif()
# For CI: several sources of a room as one, headers of others read once, and the tests' own code not optimised take a third of the compiler's time. A name
# in an unnamed namespace then stands once a room, a change compiles its neighbours again, and an include of the standard library that is missing shows
# in the other builds alone.
option(ASSAY_QUICK_BUILD "Compile the sources of a room together, others' headers ahead, and tests without optimisation: a whole build is quicker, one after a change is slower" OFF)
set(unity_batch 40)
if(ASSAY_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(assay_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>  # to the compiler what a source includes is a header
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=524288>")  # it need not look for what it can free below 512 MiB
endif()
if(ASSAY_QUICK_BUILD)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold ASSAY_HAS_GOLD)
  if(ASSAY_HAS_GOLD)  # a third of the other linker's time; what libraries show is the usual one's choice
    target_link_options(assay_flags INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-fuse-ld=gold>)
  endif()
endif()
function(assay_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ASSAY_QUICK_BUILD} UNITY_BUILD_BATCH_SIZE ${unity_batch})
endfunction()
if(ASSAY_SANITIZE)
  target_compile_options(assay_flags INTERFACE -fsanitize=${ASSAY_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_compile_definitions(assay_flags INTERFACE ASSAY_SANITIZED)
  target_link_options(assay_flags INTERFACE -fsanitize=${ASSAY_SANITIZE})
  if(ASSAY_QUICK_BUILD AND ASSAY_SANITIZE MATCHES undefined)  # a third of the compiler's time; the preset asan, and the fuzz targets, look at these too
    target_compile_options(assay_flags INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND ASSAY_SANITIZE MATCHES undefined)  # whose marks before functions clang 14 cannot put before coroutines
    target_compile_options(assay_flags INTERFACE -fno-sanitize=function)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND ASSAY_SANITIZE MATCHES thread)  # whose operator new takes the place of a test's own
    target_link_options(assay_flags INTERFACE "LINKER:--allow-multiple-definition")
  endif()
endif()
if(ASSAY_FUZZ)
  target_compile_options(assay_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_include_directories(assay_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)

# What nearly every source includes of others' headers, compiled once for the libraries, once for the tests, once for the rooms with more optimisation and
# once for those with none. A source with flags of its own must leave them out: a compiler takes what was compiled ahead only with the same.
set(standard_headers <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring> <deque>
                     <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view>
                     <system_error> <thread> <tuple> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)
# In a quick build most code is optimised little, that of tests not at all. Where tests spend their time it pays, in the rooms and programs of tests that
# this names.
set(ASSAY_OPTIMISED "" CACHE STRING "Rooms and programs of tests that a quick build compiles with ASSAY_KERNEL_OPTIMISATION, as the CPU's kernels")
set(ASSAY_UNOPTIMISED "" CACHE STRING "Rooms, and the program, that a quick build compiles without optimisation: they read, check and print what others compute")
set(ASSAY_KERNEL_OPTIMISATION -O3 CACHE STRING "Optimisation of the CPU's kernels, whatever the build type")
if(ASSAY_QUICK_BUILD)
  file(CONFIGURE OUTPUT shared_headers.cpp CONTENT "int main() {}\n")
  foreach(kind IN ITEMS library optimised unoptimised)
    add_library(assay_${kind}_headers STATIC EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/shared_headers.cpp)
    target_link_libraries(assay_${kind}_headers PRIVATE assay_flags fmt::fmt)
    target_precompile_headers(assay_${kind}_headers PRIVATE ${standard_headers})
  endforeach()
  target_compile_options(assay_optimised_headers PRIVATE ${ASSAY_KERNEL_OPTIMISATION})
  target_compile_options(assay_unoptimised_headers PRIVATE -O0)
endif()
function(assay_share_headers target kind)
  if(ASSAY_QUICK_BUILD)
    target_precompile_headers(${target} REUSE_FROM assay_${kind}_headers)
  endif()
endfunction()

# assay_optimise(TARGET NAME): as much as a quick build does for the room, or the program, of that name; with the headers compiled so.
function(assay_optimise target name)
  if(NOT ASSAY_QUICK_BUILD)
    return()
  endif()
  set(kind library)
  if(name IN_LIST ASSAY_OPTIMISED)
    set(kind optimised)
    target_compile_options(${target} PRIVATE ${ASSAY_KERNEL_OPTIMISATION})
  elseif(name IN_LIST ASSAY_UNOPTIMISED)
    set(kind unoptimised)
    target_compile_options(${target} PRIVATE -O0)
  endif()
  assay_share_headers(${target} ${kind})
endfunction()

set_property(GLOBAL PROPERTY ASSAY_ROOMS "")

set(test_environment "")
if(ASSAY_SANITIZE MATCHES thread)
  set(test_environment ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/thread_sanitizer.txt")
endif()

set(ASSAY_TEST_OPTIMISATION -O0 CACHE STRING "Optimisation of the tests' own code in a quick build")
set(test_options "")
if(ASSAY_QUICK_BUILD)
  list(APPEND test_options ${ASSAY_TEST_OPTIMISATION})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND test_options -Wno-restrict)  # a false alarm of g++ 12 at short strings that are joined
  if(ASSAY_QUICK_BUILD)  # alarms of the optimiser over gtest's templates, in the few tests that it sees
    list(APPEND test_options -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread -Wno-dangling-pointer)
  endif()
endif()
if(ASSAY_SANITIZE MATCHES undefined)
  list(APPEND test_options -fno-sanitize=undefined)  # half the time went into checks of tests
endif()

if(ASSAY_TESTS)
  enable_testing()
  include(GoogleTest)
  add_custom_target(fast_tests)    # builds every program whose tests carry the label `fast`
  add_custom_target(thread_tests)  # of these, the programs of rooms with threads
  add_custom_target(memory_tests)  # ... and of rooms that read what comes from outside, or work on memory by hand
  # The vocabularies are kept packed: 20 MB in 4.
  set(packed_data "${PROJECT_SOURCE_DIR}/tests/data/vocabularies.tar.xz")
  set(unpacked_data "${PROJECT_BINARY_DIR}/test_data")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${packed_data}")
  if("${packed_data}" IS_NEWER_THAN "${unpacked_data}/unpacked")
    file(REMOVE_RECURSE "${unpacked_data}")
    file(ARCHIVE_EXTRACT INPUT "${packed_data}" DESTINATION "${unpacked_data}")
    file(TOUCH "${unpacked_data}/unpacked")
  endif()
  add_library(assay_test_support STATIC "${PROJECT_SOURCE_DIR}/tests/support/paths.cpp" "${PROJECT_SOURCE_DIR}/tests/support/logits.cpp")
  target_link_libraries(assay_test_support PRIVATE assay_flags)
  target_include_directories(assay_test_support PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(assay_test_support PRIVATE ASSAY_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" ASSAY_UNPACKED_DATA="${unpacked_data}")
  if(ASSAY_QUICK_BUILD)
    target_compile_options(assay_test_support PRIVATE ${ASSAY_KERNEL_OPTIMISATION})
    add_executable(assay_test_headers EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/shared_headers.cpp)  # compiled as tests are: a program
    target_compile_options(assay_test_headers PRIVATE ${test_options})
    target_link_libraries(assay_test_headers PRIVATE assay_flags fmt::fmt GTest::gmock)
    target_precompile_headers(assay_test_headers PRIVATE ${standard_headers} <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endif()

function(assay_test_program name label)
  cmake_parse_arguments(ARG "" "" "STEMS;LIBS" ${ARGN})
  list(TRANSFORM ARG_STEMS APPEND .cpp)
  add_executable(${name} ${ARG_STEMS})
  assay_unite(${name})
  set(own_options FALSE)
  if(ASSAY_SANITIZE MATCHES undefined AND ARG_LIBS MATCHES "^assay_(num|quant|ops)$")  # whose inline code the tests compile: all of it is checked
    list(REMOVE_ITEM test_options -fno-sanitize=undefined)
    set(own_options TRUE)
  endif()
  if(ASSAY_QUICK_BUILD AND name IN_LIST ASSAY_OPTIMISED)
    list(REMOVE_ITEM test_options ${ASSAY_TEST_OPTIMISATION})
    list(APPEND test_options ${ASSAY_KERNEL_OPTIMISATION})
    set(own_options TRUE)
  endif()
  if(NOT own_options AND NOT ARG_LIBS STREQUAL assay_flags)
    assay_share_headers(${name} test)
  endif()
  target_compile_options(${name} PRIVATE ${test_options})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} assay_test_support GTest::gmock GTest::gtest_main)
  # The longest first, so that no processor waits for the last one.
  set(cost 1)
  if(label STREQUAL slow OR name STREQUAL backend_vulkan_tests)
    set(cost 20)
  elseif(name MATCHES "^(backend_cpu|constraint|engine|files|serve|tools)_")
    set(cost 5)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${label} COST ${cost} TIMEOUT 1200 ${test_environment})
  if(label STREQUAL fast)
    add_dependencies(fast_tests ${name})
  endif()
endfunction()

function(assay_room room)
  cmake_parse_arguments(ARG "THREADS;INNER" "" "SOURCES;DEPS;LIBS;TESTS;SLOW_TESTS" ${ARGN})
  set(target assay_${room})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(assay::${room} ALIAS ${target})
  assay_unite(${target})
  assay_optimise(${target} ${room})
  list(TRANSFORM ARG_DEPS PREPEND assay_)
  target_link_libraries(${target} PUBLIC assay_flags ${ARG_DEPS} ${ARG_LIBS})
  set_property(GLOBAL APPEND PROPERTY ASSAY_ROOMS ${target})
  if(ASSAY_TESTS AND ARG_TESTS)
    assay_test_program(${room}_tests fast STEMS ${ARG_TESTS} LIBS ${target})
    if(ARG_THREADS)
      add_dependencies(thread_tests ${room}_tests)
    endif()
    if(NOT ARG_INNER)
      add_dependencies(memory_tests ${room}_tests)
    endif()
  endif()
  if(ASSAY_TESTS AND ARG_SLOW_TESTS)
    assay_test_program(${room}_slow_tests slow STEMS ${ARG_SLOW_TESTS} LIBS ${target})
  endif()
endfunction()
