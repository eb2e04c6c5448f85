//! Numbers only: conversion, resampling, fades, levels.
