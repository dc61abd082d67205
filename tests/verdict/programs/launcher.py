#!/usr/bin/env python3
"""Imports much, starts a worker that collects, and waits, as jupyter and supervisors do."""

import ast  # noqa: F401
import asyncio  # noqa: F401
import concurrent.futures  # noqa: F401
import email.mime.text  # noqa: F401
import http.server  # noqa: F401
import pathlib
import subprocess
import sys
import unittest.mock  # noqa: F401
import xml.dom.minidom  # noqa: F401

import progress  # noqa: F401

sys.exit(subprocess.call([sys.executable, str(pathlib.Path(__file__).with_name("records.py"))]))
