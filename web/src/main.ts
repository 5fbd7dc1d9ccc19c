import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { follow } from "./lib/place.svelte";

follow();
const target = document.getElementById("page")!;
target.replaceChildren(); // an export says there how to open it
mount(App, { target });
